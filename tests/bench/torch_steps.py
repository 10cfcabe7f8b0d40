#!/usr/bin/python3
"""Milliseconds of a training step in PyTorch: the peer of mnist_step_vs_torch and gpt_step_vs_torch.

    torch_steps.py mnist|gpt [--threads N] [--steps N]

The networks are those of client/examples/mnist.h and gpt.h, with the same data, optimiser and batch; the loss is read
every step. Prints {"step_ms": median}. Exits with 3 where there is no PyTorch.
"""
import argparse
import json
import math
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit(3)


class MnistNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(576, 10))

    def forward(self, x):
        return self.features(x)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape

        def split(t):
            return t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=256, layers=12, width=256, heads=8, context=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, text):
        x = self.tokens(text) + self.positions.weight[:text.shape[1]]
        return self.norm(self.blocks(x)) @ self.tokens.weight.T


def mnist(batch=128):
    images = torch.randint(0, 256, (60000, 1, 28, 28), dtype=torch.uint8)
    labels = torch.randint(0, 10, (60000,))
    net = MnistNet()
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)

    def step():
        rows = torch.randint(0, len(images), (batch,))
        loss = F.cross_entropy(net(images[rows].float() / 255), labels[rows])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def gpt(batch=4, context=128):
    text = torch.randint(0, 256, (1 << 20,))
    net = Gpt()
    optimiser = torch.optim.AdamW(net.parameters(), 1e-3)

    def step():
        places = torch.randint(0, len(text) - context, (batch, 1)) + torch.arange(context)
        loss = F.cross_entropy(net(text[places]).flatten(0, 1), text[places + 1].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=["mnist", "gpt"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    torch.manual_seed(1)
    step = {"mnist": mnist, "gpt": gpt}[flags.net]()
    for _ in range(3):
        step()
    times = []
    for _ in range(flags.steps):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    print(json.dumps({"step_ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
