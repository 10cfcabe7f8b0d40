#!/usr/bin/env python3
"""Tries learning rates and widths side by side, each process in a session of its own, and plots what came out.

    sweep.py --processes 2                                       # on this machine
    CLOUD=1 CLOUD_KEY=... sweep.py --hosts big:6667,small:6667   # two machines; or several devices of one

Every process is a program with a session, and takes the next trial when it is done with one: two devices take half the
time. A gateway without a free device says so, and the process waits no longer than the gateway lets it.
"""
import argparse
import json
import multiprocessing
import os
import queue
import sys
from typing import NamedTuple

from outboard import Context, Tensor, TinyJit, nn
from outboard.nn.datasets import mnist
from outboard.nn.optim import Adam

import plot


class Trial(NamedTuple):
    lr: float
    width: int
    steps: int
    batch: int
    seed: int


class Outcome(NamedTuple):
    trial: Trial
    loss: float  # on held-out images
    accuracy: float  # percent of them
    process: int


def run(trial: Trial) -> tuple[float, float]:
    """Trains a network of two layers on Fashion-MNIST: loss and accuracy on the held-out images."""
    Tensor.manual_seed(trial.seed)
    images, labels, test_images, test_labels = mnist(fashion=True)
    layers = [nn.Linear(784, trial.width), Tensor.relu, nn.Linear(trial.width, 10)]
    optimiser = Adam([t for layer in (layers[0], layers[2]) for t in (layer.weight, layer.bias)], lr=trial.lr)

    def guess(pictures: Tensor) -> Tensor:
        return (pictures.flatten(1).float() / 255).sequential(layers)

    @TinyJit
    @Context(TRAINING=1)
    def step() -> Tensor:
        rows = Tensor.randint(trial.batch, low=0, high=images.shape[0])
        loss = guess(images[rows]).sparse_categorical_crossentropy(labels[rows])
        optimiser.zero_grad()
        loss.backward()
        return loss.realize(*optimiser.schedule_step())

    for _ in range(trial.steps):
        step()
    guessed = guess(test_images)
    loss = guessed.sparse_categorical_crossentropy(test_labels)
    right = (guessed.argmax(1) == test_labels).float().mean()
    loss.realize(right)
    return loss.item(), 100 * right.item()


def work(number: int, host: str | None, trials: "multiprocessing.Queue[Trial | None]",
         outcomes: "multiprocessing.Queue[Outcome | str]") -> None:
    """A process: trials until there is None. What goes wrong is the last thing that it says."""
    if host:
        os.environ["CLOUD_HOST"] = host
    try:
        while (trial := trials.get()) is not None:
            outcomes.put(Outcome(trial, *run(trial), number))
    except Exception as error:  # of whatever kind: the parent has to hear of it
        outcomes.put(f"process {number}: {error}")


def sweep(trials: list[Trial], processes: int, hosts: list[str | None]) -> list[Outcome]:
    """All trials, as many at a time as there are processes. Raises RuntimeError with what a process failed with."""
    context = multiprocessing.get_context("spawn")  # nothing of a session goes through a fork
    waiting, done = context.Queue(), context.Queue()
    for trial in [*trials, *[None] * processes]:
        waiting.put(trial)
    workers = [context.Process(target=work, args=(i, hosts[i % len(hosts)], waiting, done), daemon=True)
               for i in range(processes)]
    for worker in workers:
        worker.start()
    outcomes: list[Outcome] = []
    try:
        while len(outcomes) < len(trials):
            try:
                answer = done.get(timeout=1)
            except queue.Empty:
                if dead := [worker for worker in workers if worker.exitcode]:
                    raise RuntimeError(f"a process ended with exit code {dead[0].exitcode}") from None
                continue
            if isinstance(answer, str):
                raise RuntimeError(answer)
            outcomes.append(answer)
            print(f"{len(outcomes)} of {len(trials)}  lr {answer.trial.lr:g}  width {answer.trial.width}  "
                  f"loss {answer.loss:.4f}  accuracy {answer.accuracy:.2f} %", file=sys.stderr)
    except BaseException:
        for worker in workers:
            worker.terminate()
        raise
    finally:
        for worker in workers:
            worker.join()
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lr", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2])
    parser.add_argument("--width", type=int, nargs="+", default=[32, 128, 512], help="numbers in the hidden layer")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=128, help="images a step")
    parser.add_argument("--processes", type=int, help="sessions at a time; else 2, or one for each host")
    parser.add_argument("--hosts", default="", help="gateways, with commas between them; else CLOUD_HOST")
    parser.add_argument("--out", default="sweep.png", help="the plot")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers, the same for every trial")
    parser.add_argument("--json", action="store_true", help="print all outcomes as one JSON list")
    flags = parser.parse_args()
    hosts = [host for host in flags.hosts.split(",") if host] or [None]
    processes = flags.processes or max(len(hosts), 2 if hosts == [None] else 1)
    trials = [Trial(lr, width, flags.steps, flags.batch, flags.seed) for width in flags.width for lr in flags.lr]
    try:
        outcomes = sweep(trials, min(processes, len(trials)), hosts)
    except RuntimeError as error:
        print(f"sweep: {error}", file=sys.stderr)
        return 1
    series = {f"width {width}": [(o.trial.lr, o.loss) for o in outcomes if o.trial.width == width]
              for width in flags.width}
    plot.lines(flags.out, series, "learning rate", "loss", f"after {flags.steps} steps")
    best = min(outcomes, key=lambda o: o.loss)
    if flags.json:
        print(json.dumps([{**o.trial._asdict(), "loss": o.loss, "accuracy": o.accuracy, "process": o.process}
                          for o in outcomes]))
    else:
        print(f"best: lr {best.trial.lr:g}, width {best.trial.width}, accuracy {best.accuracy:.2f} %; see {flags.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
