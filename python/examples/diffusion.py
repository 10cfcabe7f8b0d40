#!/usr/bin/env python3
"""A small model that turns the name of a class into a picture, in one round trip.

    diffusion.py train --steps 2000                 # on Fashion-MNIST; diffusion.safetensors is what it learned
    diffusion.py draw 9 --out boots.png             # sixteen pictures of class 9

The model is a flow (Lipman et al., 2023; Liu et al., 2023): between noise at time 0 and a picture at time 1 it learns
the velocity of the straight line that joins them, and draws by following it from fresh noise. All of these steps travel
as one message (outboard.repeat); what comes back is the picture.
"""
import argparse
import math
import sys
import time

import outboard
from outboard import Context, Session, Tensor, TinyJit, nn, png
from outboard.nn.datasets import mnist
from outboard.nn.optim import Adam
from outboard.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save

CLASSES, SIDE = 10, 28


def time_features(when: Tensor, count: int) -> Tensor:
    """Sines and cosines of [n] times in 0..1, at wavelengths from 2 down to about 1/16: [n, count]."""
    angles = when.reshape(-1, 1) * (math.pi * 2 ** (Tensor.arange(count // 2) * (10 / count)))
    return angles.sin().cat(angles.cos(), dim=1)


class Block:
    """Two convolutions beside the way through; what is to be drawn, and when, is added between them."""

    def __init__(self, channels_in: int, channels: int, wishes: int):
        self.norm1, self.norm2 = nn.GroupNorm(4, channels_in), nn.GroupNorm(4, channels)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.wish = nn.Linear(wishes, channels)
        self.way = nn.Conv2d(channels_in, channels, 1)

    def __call__(self, x: Tensor, wish: Tensor) -> Tensor:
        y = self.conv1(self.norm1(x).silu()) + self.wish(wish).reshape(x.shape[0], -1, 1, 1)
        return self.way(x) + self.conv2(self.norm2(y).silu())


def larger(x: Tensor) -> Tensor:
    """Twice as high and wide."""
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height, 1, width, 1).expand(batch, channels, height, 2, width, 2)
    return x.reshape(batch, channels, 2 * height, 2 * width)


class Velocity:
    """Pictures [n, 1, 28, 28] in about -1..1, times [n], labels [n] -> what they move by in a unit of time."""

    def __init__(self, width: int):
        wishes = 4 * width
        self.time1, self.time2 = nn.Linear(32, wishes), nn.Linear(wishes, wishes)
        self.label = nn.Embedding(CLASSES, wishes)
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.down1, self.down2 = Block(width, 2 * width, wishes), Block(2 * width, 4 * width, wishes)
        self.middle = Block(4 * width, 4 * width, wishes)
        self.up2, self.up1 = Block(6 * width, 2 * width, wishes), Block(3 * width, width, wishes)
        self.norm, self.last = nn.GroupNorm(4, width), nn.Conv2d(width, 1, 3, padding=1)

    def __call__(self, x: Tensor, when: Tensor, label: Tensor) -> Tensor:
        wish = (self.time2(self.time1(time_features(when, 32)).silu()) + self.label(label)).silu()
        full = self.first(x)
        half = self.down1(full.avg_pool2d(), wish)
        quarter = self.middle(self.down2(half.avg_pool2d(), wish), wish)
        half = self.up2(larger(quarter).cat(half, dim=1), wish)
        return self.last(self.norm(self.up1(larger(half).cat(full, dim=1), wish)).silu())


class Trainer:
    """Needs images [n, 1, 28, 28] and labels [n], both of uint8."""

    def __init__(self, net: Velocity, images: Tensor, labels: Tensor, batch: int, lr: float):
        self.net, self.images, self.labels, self.batch = net, images, labels, batch
        self.optimiser = Adam(get_parameters(net), lr=lr)

    @TinyJit
    @Context(TRAINING=1)
    def step(self) -> Tensor:
        rows = Tensor.randint(self.batch, low=0, high=self.images.shape[0])
        picture = self.images[rows].float() / 127.5 - 1
        noise, when = Tensor.randn(*picture.shape), Tensor.rand(self.batch)
        share = when.reshape(-1, 1, 1, 1)
        velocity = self.net(noise + share * (picture - noise), when, self.labels[rows])
        loss = (velocity - (picture - noise)).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        return loss.realize(*self.optimiser.schedule_step())


def draw(net: Velocity, label: int, count: int, steps: int) -> Tensor:
    """`count` pictures [count, 1, 28, 28] in -1..1; nothing is waited for."""
    labels = Tensor([label] * count)
    x = Tensor.randn(count, 1, SIDE, SIDE).realize()
    when = Tensor.zeros(count).contiguous().realize()

    def step() -> None:
        x.assign(x + net(x, when, labels) / steps)
        when.assign(when + 1 / steps)

    outboard.repeat(steps, step)
    return x.clip(-1, 1)


def sheet(pictures: Tensor) -> Tensor:
    """[n, 1, h, w] in -1..1 -> one picture of bytes, as many beside each other as below."""
    count, _, height, width = pictures.shape
    across = math.isqrt(count - 1) + 1 if count else 0
    down = -(-count // across)
    pictures = pictures.pad(((0, across * down - count), (0, 0), (0, 0), (0, 0)), value=-1.0)
    grid = pictures.reshape(down, across, height, width).permute(0, 2, 1, 3).reshape(down * height, across * width)
    return ((grid + 1) * 127.5).round().cast("uint8")


def train(flags: argparse.Namespace) -> None:
    images, labels, _, _ = mnist(fashion=True)
    net = Velocity(flags.width)
    trainer, begin = Trainer(net, images, labels, flags.batch, flags.lr), time.perf_counter()
    for step in range(1, flags.steps + 1):
        result = trainer.step()
        if step == 1 or step % flags.print_every == 0 or step == flags.steps:
            loss, milliseconds = result.item(), 1e3 * (time.perf_counter() - begin) / step
            print(f"step {step}  loss {loss:.4f}  {milliseconds:.1f} ms/step", file=sys.stderr)
    safe_save(get_state_dict(net), flags.weights)
    print(f"{flags.weights} is what it learned")


def draw_label(flags: argparse.Namespace) -> None:
    if not 0 <= flags.label < CLASSES:
        raise ValueError(f"label {flags.label} is not in 0..{CLASSES - 1}")
    weights = safe_load(flags.weights)
    net = Velocity(weights["first.weight"].shape[0])
    load_state_dict(net, weights, verbose=False)
    # A file's weights go up when something needs them: now, so that what is counted below is the drawing alone.
    Tensor.stack(*[weight.sum() for weight in get_parameters(net)]).numpy()
    session = Session.current()
    trips, begin = session.stats.round_trips, time.perf_counter()
    png.write(flags.out, sheet(draw(net, flags.label, flags.count, flags.steps)).numpy())
    seconds, trips = time.perf_counter() - begin, session.stats.round_trips - trips
    print(f"{flags.out}: {flags.count} pictures in {flags.steps} steps and {trips} round trip{'s'[:trips != 1]}, "
          f"{seconds:.1f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--weights", default="diffusion.safetensors", help="the file with what was learned")
    common.add_argument("--seed", type=int, help="of the random numbers, else a fresh one")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("train", parents=[common], help="learn from Fashion-MNIST")
    command.add_argument("--steps", type=int, default=2000)
    command.add_argument("--batch", type=int, default=64, help="pictures a step")
    command.add_argument("--width", type=int, default=16, help="channels at full size, a multiple of 4")
    command.add_argument("--lr", type=float, default=2e-3)
    command.add_argument("--print-every", type=int, default=20, help="steps between two looks at the loss")
    command.set_defaults(run=train)
    command = commands.add_parser("draw", parents=[common], help="draw pictures of a class")
    command.add_argument("label", type=int, help=f"0 to {CLASSES - 1}")
    command.add_argument("--count", type=int, default=16)
    command.add_argument("--steps", type=int, default=50, help="from noise to picture")
    command.add_argument("--out", default="picture.png")
    command.set_defaults(run=draw_label)
    flags = parser.parse_args()
    if flags.seed is not None:
        Tensor.manual_seed(flags.seed)
    try:
        flags.run(flags)
    except (OSError, ValueError) as error:
        print(f"diffusion: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
