#!/usr/bin/python3
"""Milliseconds of a step of the GPT by PyTorch's DistributedDataParallel on Gloo: the peer of dp2_vs_torch_ddp_1gbit.

    torch_ddp.py --rank R --ranks N --master ADDRESS [--batch B] [--steps N] [--proxy PROGRAM --rate BYTES]

Each rank runs on one thread, with the network, optimiser and batch of torch_steps.py, eagerly and by torch.compile; the
loss is read every step. GLOO_SOCKET_IFNAME names the interface. Rank 0 prints {"step_ms": median of the better way}.
With --proxy, of two ranks on one machine, what they exchange passes a fault proxy of that rate, each way, as the links
of our own workers do; rank 0 prints {"proxied_bytes": all that has passed}, too. Exits with 3 where there is no PyTorch.
"""
import argparse
import json
import socket
import struct
import subprocess
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


class ProxiedStore(distributed.Store):
    """A TCPStore in which each rank's Gloo address is that of a proxy before it.

    Ranks publish where they listen as the bytes of a sockaddr_in. Whose address is the lesser one listens, and each rank
    compares its own, true one with the other's published one; ports as they lie in memory, so that on this processor
    the second byte counts first. Rank 0's proxy has a port with the least there, rank 1's one with the most, and both
    see the same order.
    """

    PORTS = {0: range(0x4000, 0x7000, 0x100), 1: range(0xF0FF, 0x10000, 0x100)}

    def __init__(self, store, rank, proxy, rate):
        super().__init__()
        self.store, self.rank, self.proxy, self.rate, self.proxies = store, rank, proxy, rate, {}

    def proxied(self, port):
        if port not in self.proxies:
            for listen in self.PORTS[self.rank]:
                process = subprocess.Popen(
                    [self.proxy, "--target", f"127.0.0.1:{port}", "--listen", f"127.0.0.1:{listen}", "--rate-up",
                     str(self.rate), "--rate-down", str(self.rate)], stdout=subprocess.PIPE, text=True)
                if process.stdout.readline().startswith("127.0.0.1:"):
                    break
            else:
                raise RuntimeError("torch_ddp: no port for a proxy")
            self.proxies[port] = (listen, process)
        return self.proxies[port][0]

    def set(self, key, value):
        value = value.encode() if isinstance(value, str) else bytes(value)
        head, here = struct.pack("=H", socket.AF_INET), socket.inet_aton("127.0.0.1")
        out, at = bytearray(value), 0
        while (at := value.find(here, at)) >= 0:
            if at >= 4 and value[at - 4:at - 2] == head:
                port = struct.unpack("!H", value[at - 2:at])[0]
                out[at - 2:at] = struct.pack("!H", self.proxied(port))
            at += 4
        self.store.set(key, bytes(out))

    def get(self, key):
        return self.store.get(key)

    def add(self, key, amount):
        return self.store.add(key, amount)

    def check(self, keys):
        return self.store.check(keys)

    def wait(self, keys, *timeout):
        return self.store.wait(keys, *timeout)

    def end(self):
        """Ends the proxies; returns the bytes that passed them."""
        passed = 0
        for _, process in self.proxies.values():
            process.terminate()
            words = process.communicate()[0].split()
            passed += int(words[words.index("bytes") - 1]) + int(words[words.index("down") - 1])
        return passed


def measure(flags):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--port", type=int, default=29500)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--proxy", help="the program fault_proxy")
    parser.add_argument("--rate", type=int, default=0, help="bytes a second that a proxy passes each way")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    store = distributed.TCPStore(flags.master, flags.port, flags.ranks, flags.rank == 0)
    if flags.proxy:
        store = ProxiedStore(store, flags.rank, flags.proxy, flags.rate)
    try:
        distributed.init_process_group("gloo", store=store, rank=flags.rank, world_size=flags.ranks)
        measure(flags)
    finally:
        passed = store.end() if flags.proxy else 0
    if flags.rank == 0 and flags.proxy:
        print(json.dumps({"proxied_bytes": passed}))


if __name__ == "__main__":
    main()
