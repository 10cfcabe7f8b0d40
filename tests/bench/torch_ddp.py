#!/usr/bin/python3
"""Milliseconds of a step of the GPT by PyTorch's DistributedDataParallel on Gloo: the peer of dp2_vs_torch_ddp_1gbit.

    torch_ddp.py --rank R --ranks N --master ADDRESS [--batch B] [--steps N]

Each rank runs on one thread, with the network, optimiser and batch of torch_steps.py, eagerly and by torch.compile; the
loss is read every step. GLOO_SOCKET_IFNAME names the interface. Rank 0 prints {"step_ms": median of the better way}.
Exits with 3 where there is no PyTorch.
"""
import argparse
import json
import sys

try:
    import torch
    from torch import distributed
    from torch.nn import functional as F
except ImportError:
    sys.exit(3)

import torch_steps


def stepper(compiled, batch, context=128):
    torch.manual_seed(1)
    text = torch.randint(0, 256, (1 << 16,))
    net = torch.nn.parallel.DistributedDataParallel(torch_steps.Gpt(), gradient_as_bucket_view=True)
    forward = torch.compile(net) if compiled else net

    def loss_of(passages, labels):
        return F.cross_entropy(forward(passages).flatten(0, 1), labels.flatten())

    def passages():
        places = torch.randint(0, len(text) - context, (batch, 1)) + torch.arange(context)
        return text[places], text[places + 1]

    return torch_steps.stepper(loss_of, torch.optim.AdamW(net.parameters(), 1e-3, fused=True), passages)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--port", type=int, default=29500)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=9)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://{flags.master}:{flags.port}", rank=flags.rank,
                                   world_size=flags.ranks)
    times = {}
    for way in ("eager", "compile"):
        try:
            times[way] = torch_steps.median_ms(stepper(way == "compile", flags.batch), flags.steps)
        except RuntimeError as error:
            if way == "eager":
                raise
            print(f"torch_ddp: no torch.compile: {error}", file=sys.stderr)
    if flags.rank == 0:
        print(json.dumps({"step_ms": min(times.values()), **times}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
