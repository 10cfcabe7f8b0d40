#!/usr/bin/env python3
"""Trains the network of tinygrad's beautiful_mnist on 60,000 images in the cloud.

    beautiful_mnist.py --steps 300
    CLOUD=1 CLOUD_HOST=host:6667 CLOUD_KEY=... beautiful_mnist.py --target-accuracy 85

The images go to the cloud once; a step draws its batch there, and is one short message.
client/examples/beautiful_mnist.cpp is the same program in C++.
"""
import argparse
import json
import math
import sys
import time

from outboard import Context, Tensor, TinyJit, nn
from outboard.nn.datasets import mnist
from outboard.nn.optim import Adam
from outboard.nn.state import get_parameters

EVAL_BATCH = 500


class MnistNet:
    def __init__(self):
        self.conv1, self.conv2, self.norm1 = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 32, 5), nn.BatchNorm2d(32)
        self.conv3, self.conv4, self.norm2 = nn.Conv2d(32, 64, 3), nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64)
        self.out = nn.Linear(576, 10)

    def __call__(self, x: Tensor) -> Tensor:
        """[batch, 1, 28, 28] of floats -> [batch, 10]."""
        x = self.norm1(self.conv2(self.conv1(x).relu()).relu()).max_pool2d()
        x = self.norm2(self.conv4(self.conv3(x).relu()).relu()).max_pool2d()
        return self.out(x.flatten(1))


def pixels(images: Tensor, rows: Tensor) -> Tensor:
    """As numbers in 0..1."""
    return images[rows].float() / 255


class Trainer:
    """Needs images [n, 1, 28, 28] and labels [n], both of uint8."""

    def __init__(self, images: Tensor, labels: Tensor, batch: int, lr: float):
        self.images, self.labels, self.batch = images, labels, batch
        self.net, self.right = MnistNet(), Tensor([0]).realize()
        self.optimiser = Adam(get_parameters(self.net), lr=lr)

    @TinyJit
    @Context(TRAINING=1)
    def step(self) -> Tensor:
        rows = Tensor.randint(self.batch, low=0, high=self.images.shape[0])
        loss = self.net(pixels(self.images, rows)).sparse_categorical_crossentropy(self.labels[rows])
        self.optimiser.zero_grad()
        loss.backward()
        return loss.realize(*self.optimiser.schedule_step())

    @TinyJit
    def _count_right(self, images: Tensor, labels: Tensor, first: Tensor) -> None:
        rows = Tensor.arange(EVAL_BATCH) + first
        self.right.assign(self.right + (self.net(pixels(images, rows)).argmax(1) == labels[rows]).sum()).realize()

    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Percent of whole batches that are classified right; all batches are one graph, under way at once."""
        begins = range(0, images.shape[0] - EVAL_BATCH + 1, EVAL_BATCH)
        self.right.assign(Tensor([0])).realize()
        for begin in begins:  # as a tensor: a number would be part of the graph
            self._count_right(images, labels, Tensor([begin]).realize())
        return 100 * self.right.item() / (EVAL_BATCH * len(begins))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="to train at most")
    parser.add_argument("--batch", type=int, default=128, help="images a step")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--target-accuracy", type=float, default=0, help="percent; stop when it is passed")
    parser.add_argument("--eval-every", type=int, default=50, help="steps between two looks at the accuracy")
    parser.add_argument("--print-every", type=int, default=10, help="steps between two looks at the loss")
    parser.add_argument("--seed", type=int, help="of the random numbers, else a fresh one")
    parser.add_argument("--json", action="store_true", help="print a summary as one JSON object")
    flags = parser.parse_args()
    if flags.seed is not None:
        Tensor.manual_seed(flags.seed)

    train_images, train_labels, test_images, test_labels = mnist(fashion=True)
    trainer = Trainer(train_images, train_labels, flags.batch, flags.lr)
    accuracy, loss, begin = 0.0, math.nan, time.perf_counter()
    step = 0
    for step in range(1, flags.steps + 1):
        result = trainer.step()
        if step == 1 or step % flags.print_every == 0 or step == flags.steps:
            loss = result.item()
            milliseconds = 1e3 * (time.perf_counter() - begin) / step
            print(f"step {step}  loss {loss:.4f}  {milliseconds:.1f} ms/step", file=sys.stderr)
        if flags.target_accuracy and step % flags.eval_every == 0:
            accuracy = trainer.accuracy(test_images, test_labels)
            print(f"step {step}  accuracy {accuracy:.2f} %", file=sys.stderr)
            if accuracy > flags.target_accuracy:
                break
    accuracy = trainer.accuracy(test_images, test_labels)
    outcome = {"steps": step, "loss": loss, "accuracy": accuracy}
    print(json.dumps(outcome) if flags.json else f"accuracy {accuracy:.2f} % of the held-out images after {step} steps")
    return 0 if accuracy > flags.target_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
