#!/usr/bin/python3
"""The character GPT of python/examples/chargpt.py in PyTorch: the peer of chargpt_vs_torch.

    torch_chargpt.py FILE [--steps N] [--threads N] [--compile]

The network, initial values, optimiser, learning rates and batches (drawn at random, the loss read every so many steps)
are the same; the optimiser is PyTorch's fused one. With --compile, forward, loss and backward go through torch.compile,
whose time is in the first step. Prints {"steps", "first_step_s", "step_ms", "loss", "validation"}; step_ms is the mean
of the steps after the first. Exits with 3 where there is no PyTorch.
"""
import argparse
import json
import math
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit(3)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, layers=4, width=128, heads=4, context=64):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens.weight, self.positions.weight):
            nn.init.xavier_uniform_(table)

    def forward(self, text):
        x = self.tokens(text) + self.positions.weight[:text.shape[1]]
        return self.norm(self.blocks(x)) @ self.tokens.weight.T


def learning_rate(step, steps, peak, warmup):
    """Rises over `warmup` steps, then falls to a tenth along half a cosine; `step` counts from one."""
    rising, falling = step / warmup, 0.55 + 0.45 * math.cos(math.pi * step / steps)
    return peak * min(rising, falling)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--print-every", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    torch.manual_seed(flags.seed)

    with open(flags.text, "rb") as file:
        data = file.read()
    letters = sorted(set(data))
    text = torch.tensor(list(data.translate(bytes(letters.index(c) if c in letters else 0 for c in range(256)))))
    held_out = len(text) // 10
    train, validation = text[:-held_out], text[-held_out:]
    net = Gpt(len(letters), context=flags.context)
    optimiser = torch.optim.AdamW(net.parameters(), flags.lr, betas=(0.9, 0.99), weight_decay=0.1,
                                  fused=True)

    def passages(source, begins):
        places = begins.unsqueeze(1) + torch.arange(flags.context)
        return source[places], source[places + 1]

    def cross_entropy(x, y):
        return F.cross_entropy(net(x).flatten(0, 1), y.flatten())

    run = torch.compile(cross_entropy) if flags.compile else cross_entropy

    def loss_of(source, begins):
        return run(*passages(source, begins))

    begin, loss, first_step_s, step_ms = time.perf_counter(), math.nan, 0.0, 0.0
    for step in range(1, flags.steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, flags.steps, flags.lr, flags.warmup)
        value = loss_of(train, torch.randint(0, len(train) - flags.context, (flags.batch,)))
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        optimiser.step()
        if step != 1 and step % flags.print_every != 0 and step != flags.steps:
            continue
        loss, seconds = value.item(), time.perf_counter() - begin
        if step == 1:
            first_step_s = seconds
        else:
            step_ms = 1e3 * (seconds - first_step_s) / (step - 1)
        print(f"step {step}  loss {loss:.4f}  {step_ms:.1f} ms/step", file=sys.stderr)
    with torch.no_grad():
        begins = torch.arange(0, len(validation) - flags.context - 1, flags.context)
        losses = [(loss_of(validation, part).item(), len(part)) for part in begins.split(64)]
    mean = sum(value * count for value, count in losses) / len(begins)
    print(json.dumps({"steps": flags.steps, "first_step_s": first_step_s, "step_ms": step_ms, "loss": loss,
                      "validation": mean}))


if __name__ == "__main__":
    main()
