#!/usr/bin/python3
"""Milliseconds of a training step in PyTorch: the peer of ..._step_vs_torch and ..._train_vs_torch.

    torch_steps.py mnist|gpt|gpt_1024|resnet18|vit [--threads N] [--steps N] [--how WAY ...]

The networks are those of client/examples/mnist.h and gpt.h and of vision_steps.py, with the same data, optimiser and
batch; the loss is read every step. Every way that PyTorch has of running it is tried, and the best one counts:

    eager           as written
    fused           gpt_1024: attention by scaled_dot_product_attention; also by torch.compile as fused_compile
    compile         forward, loss and backward by torch.compile (needs g++)
    channels_last   pictures and weights with the channels innermost; eager, and by torch.compile as channels_last_compile

each with the optimiser of PyTorch in its fused form. Prints {"step_ms": median of the best way, "how": its name, and the
median of each way}. Exits with 3 where there is no PyTorch.
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

import torch_chargpt


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
    def __init__(self, width, heads, fused=False):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape

        def split(t):
            return t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=256, layers=12, width=256, heads=8, context=128, fused=False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, fused) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, text):
        x = self.tokens(text) + self.positions.weight[:text.shape[1]]
        return self.norm(self.blocks(x)) @ self.tokens.weight.T


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                          nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18_net():
    widths = [64, 64, 128, 256, 512]
    blocks = []
    for i in range(4):
        blocks += [ResidualBlock(widths[i], widths[i + 1], 1 if i == 0 else 2),
                   ResidualBlock(widths[i + 1], widths[i + 1], 1)]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                         nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class VitBlock(torch_chargpt.Block):
    """Without a mask."""

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Vit(nn.Module):
    def __init__(self, width=192, layers=6, heads=3, patch=8):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (64 // patch)**2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(VitBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), 1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Way:
    """How a network is run: with which layout of pictures, and whether torch.compile sees it."""

    def __init__(self, name):
        self.name = name
        self.channels_last = name.startswith("channels_last")
        self.fused = name.startswith("fused")
        self.compiled = name.endswith("compile")

    def loss_of(self, net, loss):
        """Returns the function (inputs, labels) -> loss."""
        if self.channels_last:
            net = net.to(memory_format=torch.channels_last)

        def whole(x, y):
            return loss(net(x), y)

        return torch.compile(whole) if self.compiled else whole

    def layout(self, pictures):
        return pictures.contiguous(memory_format=torch.channels_last) if self.channels_last else pictures


def stepper(loss_of, optimiser, batch):
    """A training step, on what `batch()` returns; its result is the loss as a number."""
    def step():
        loss = loss_of(*batch())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def mnist(way, batch=128):
    images = torch.randint(0, 256, (60000, 1, 28, 28), dtype=torch.uint8)
    labels = torch.randint(0, 10, (60000,))
    net = MnistNet()
    loss_of = way.loss_of(net, F.cross_entropy)

    def rows():
        chosen = torch.randint(0, len(images), (batch,))
        return way.layout(images[chosen].float() / 255), labels[chosen]

    return stepper(loss_of, torch.optim.Adam(net.parameters(), 1e-3, fused=True), rows)


def gpt(way, batch=4, context=128):
    text = torch.randint(0, 256, (1 << 20,))
    net = Gpt(context=context, fused=way.fused)
    loss_of = way.loss_of(net, lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten()))

    def passages():
        places = torch.randint(0, len(text) - context, (batch, 1)) + torch.arange(context)
        return text[places], text[places + 1]

    return stepper(loss_of, torch.optim.AdamW(net.parameters(), 1e-3, fused=True), passages)


def gpt_1024(way):
    return gpt(way, batch=1, context=1024)


def pictures(batch, way):
    images, labels = way.layout(torch.rand(batch, 3, 64, 64)), torch.randint(0, 1000, (batch,))
    return lambda: (images, labels)


def resnet18(way):
    net = resnet18_net()
    loss_of = way.loss_of(net, F.cross_entropy)
    optimiser = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, fused=True)
    return stepper(loss_of, optimiser, pictures(32, way))


def vit(way):
    net = Vit()
    loss_of = way.loss_of(net, F.cross_entropy)
    return stepper(loss_of, torch.optim.AdamW(net.parameters(), 1e-3, fused=True), pictures(16, way))


# Which ways may be the best for a network.
OF_PICTURES = ["eager", "compile", "channels_last", "channels_last_compile"]
NETS = {"mnist": (mnist, OF_PICTURES), "gpt": (gpt, ["eager", "compile"]), "resnet18": (resnet18, OF_PICTURES),
        "gpt_1024": (gpt_1024, ["eager", "compile", "fused", "fused_compile"]), "vit": (vit, ["eager", "compile"])}


def median_ms(step, steps):
    for _ in range(3):
        step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=list(NETS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--how", nargs="+", metavar="WAY", help="only these ways")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    make, ways = NETS[flags.net]
    for way in flags.how or []:
        if way not in ways:
            parser.error(f"{flags.net} has no way {way}: {', '.join(ways)}")
    times = {}
    for way in flags.how or ways:
        torch.manual_seed(1)
        times[way] = median_ms(make(Way(way)), flags.steps)
    best = min(times, key=times.get)
    print(json.dumps({"step_ms": times[best], "how": best, **times}))


if __name__ == "__main__":
    main()
