#!/usr/bin/env python3
"""Trains a small, fast residual network on folders of pictures, in the manner of hlb_cifar.

    cifar_resnet.py photos          # photos/train/CLASS/*.png and photos/test/CLASS/*.png, all of one size

The pictures go to the cloud once, as bytes. A step draws its batch there, shifts each picture by some pixels and
mirrors half of them, all in one lookup; the learning rate rises for a fifth of the steps and falls to nothing over the
others.
"""
import argparse
import json
import sys
import time

from outboard import Context, Tensor, TinyJit, dtypes, nn
from outboard.nn.datasets import image_folder
from outboard.nn.optim import SGD
from outboard.nn.state import get_parameters


class Group:
    """Halves height and width; then two convolutions beside the way through."""

    def __init__(self, channels_in: int, channels: int):
        self.conv1 = nn.Conv2d(channels_in, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv3 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2, self.norm3 = (nn.BatchNorm2d(channels) for _ in range(3))

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv1(x).max_pool2d()).gelu()
        return x + self.norm3(self.conv3(self.norm2(self.conv2(x)).gelu())).gelu()


class ResNet:
    """[batch, channels, height, width], 8 pixels or more each way -> [batch, classes]."""

    def __init__(self, channels: int, classes: int, width: int):
        self.stem, self.norm = nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.groups = [Group(width, 2 * width), Group(2 * width, 4 * width), Group(4 * width, 4 * width)]
        self.out = nn.Linear(4 * width, classes, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).gelu().sequential(self.groups)
        return self.out(x.max((2, 3))) / 9


class Pictures:
    """Bytes in the cloud, with the numbers of their classes."""

    def __init__(self, images: Tensor, labels: Tensor):
        self.shape, self.bytes, self.labels = images.shape, images.flatten().realize(), labels.realize()
        self.mean, self.deviation = images.float().mean().realize(), images.float().std().realize()

    def take(self, rows: Tensor, up: Tensor, left: Tensor, mirrored: Tensor) -> Tensor:
        """Of each row, moved by so many pixels, the edges drawn out; mirrored where that is 1. All four are [n]."""
        _, channels, height, width = self.shape
        row, up, left, mirrored = (t.reshape(-1, 1, 1, 1) for t in (rows, up, left, mirrored))
        y = (Tensor.arange(height).reshape(-1, 1) + up).clip(0, height - 1)
        x = Tensor.arange(width)
        x = ((mirrored == 1).where(width - 1 - x, x) + left).clip(0, width - 1)
        channel = Tensor.arange(channels).reshape(-1, 1, 1)
        place = ((row * channels + channel) * height + y) * width + x
        return (self.bytes[place].float() - self.mean) / self.deviation


class Trainer:
    def __init__(self, net: ResNet, train: Pictures, flags: argparse.Namespace):
        self.net, self.train, self.flags = net, train, flags
        self.optimiser = SGD(get_parameters(net), lr=flags.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.steps_done = Tensor([0.0]).realize()

    def learning_rate(self, step: Tensor) -> Tensor:
        peak = max(self.flags.steps / 5, 1)
        return (step / peak).minimum((self.flags.steps - step) / max(self.flags.steps - peak, 1)).relu() * self.flags.lr

    @TinyJit
    @Context(TRAINING=1)
    def step(self) -> Tensor:
        batch, shift = self.flags.batch, self.flags.shift
        self.steps_done.assign(self.steps_done + 1)
        self.optimiser.lr.assign(self.learning_rate(self.steps_done))
        rows = Tensor.randint(batch, low=0, high=self.train.shape[0])
        up, left = (Tensor.randint(batch, low=-shift, high=shift + 1) for _ in range(2))
        x = self.train.take(rows, up, left, Tensor.randint(batch, low=0, high=2))
        loss = self.net(x).sparse_categorical_crossentropy(self.train.labels[rows], label_smoothing=0.1)
        self.optimiser.zero_grad()
        loss.backward()
        return loss.realize(*self.optimiser.schedule_step())


class Judge:
    """How many of a folder's pictures the network gets right, by what it says of each and of its mirror image."""

    def __init__(self, net: ResNet, test: Pictures, batch: int):
        self.net, self.test, self.batch = net, test, min(batch, test.shape[0])
        self.right = Tensor([0]).realize()

    @TinyJit
    def _count_right(self, first: Tensor) -> None:
        rows, none = Tensor.arange(self.batch) + first, Tensor.zeros(self.batch, dtype=dtypes.int)
        guess = self.net(self.test.take(rows, none, none, none)) + self.net(self.test.take(rows, none, none, none + 1))
        self.right.assign(self.right + (guess.argmax(1) == self.test.labels[rows]).sum()).realize()

    def accuracy(self) -> float:
        """Percent, of whole batches."""
        begins = range(0, self.test.shape[0] - self.batch + 1, self.batch)
        self.right.assign(Tensor([0])).realize()
        for begin in begins:
            self._count_right(Tensor([begin]).realize())
        return 100 * self.right.item() / (self.batch * len(begins))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="with train/CLASS/*.png and test/CLASS/*.png")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256, help="pictures a step")
    parser.add_argument("--width", type=int, default=64, help="channels behind the first convolution")
    parser.add_argument("--lr", type=float, default=0.1, help="the largest learning rate")
    parser.add_argument("--shift", type=int, default=2, help="pixels that a picture may be moved by")
    parser.add_argument("--print-every", type=int, default=20, help="steps between two looks at the loss")
    parser.add_argument("--seed", type=int, help="of the random numbers, else a fresh one")
    parser.add_argument("--json", action="store_true", help="print a summary as one JSON object")
    flags = parser.parse_args()
    if flags.seed is not None:
        Tensor.manual_seed(flags.seed)
    try:
        *train, classes = image_folder(f"{flags.folder}/train")
        *test, test_classes = image_folder(f"{flags.folder}/test")
        if classes != test_classes:
            raise ValueError(f"{flags.folder}: train has the classes {classes}, test {test_classes}")
    except (OSError, ValueError) as error:
        print(f"cifar_resnet: {error}", file=sys.stderr)
        return 1

    train, test = Pictures(*train), Pictures(*test)
    net = ResNet(train.shape[1], len(classes), flags.width)
    trainer, loss, begin = Trainer(net, train, flags), float("nan"), time.perf_counter()
    for step in range(1, flags.steps + 1):
        result = trainer.step()
        if step == 1 or step % flags.print_every == 0 or step == flags.steps:
            loss = result.item()
            milliseconds = 1e3 * (time.perf_counter() - begin) / step
            print(f"step {step}  loss {loss:.4f}  {milliseconds:.1f} ms/step", file=sys.stderr)
    accuracy = Judge(net, test, 250).accuracy()
    outcome = {"steps": flags.steps, "loss": loss, "accuracy": accuracy}
    print(json.dumps(outcome) if flags.json else f"accuracy {accuracy:.2f} % of the test pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
