#!/usr/bin/env python3
"""Trains a GPT on a text file, character by character.

    chargpt.py book.txt                         # two thousand steps; chargpt.safetensors is what it learned
    CLOUD=1 CLOUD_KEY=... chargpt.py book.txt   # the same, on somebody else's machine

The text goes to the cloud once. A step draws its passages there, and the learning rate comes from a counter there, so
all steps are one message of the same few bytes. A tenth of the text is held out for the validation.
"""
import argparse
import json
import math
import sys
import time

from outboard import Context, Tensor, TinyJit
from outboard.nn.optim import AdamW
from outboard.nn.state import get_parameters

from gpt import Gpt, GptOptions, Letters, save

VALIDATION_BATCH = 64


class Trainer:
    """AdamW whose learning rate rises over `warmup` steps, then falls to a tenth along half a cosine."""

    def __init__(self, net: Gpt, text: Tensor, flags: argparse.Namespace):
        self.net, self.text, self.flags = net, text, flags
        self.optimiser = AdamW(get_parameters(net), lr=flags.lr, b1=0.9, b2=0.99, weight_decay=0.1)
        self.steps_done, self.total = Tensor([0.0]).realize(), Tensor([0.0]).realize()

    def loss(self, text: Tensor, begins: Tensor) -> Tensor:
        """Of the passages that begin there: [batch, 1]."""
        places = begins + Tensor.arange(self.net.options.context)
        return self.net(text[places]).sparse_categorical_crossentropy(text[places + 1])

    def learning_rate(self, step: Tensor) -> Tensor:
        rising, falling = step / self.flags.warmup, 0.55 + 0.45 * (step * (math.pi / self.flags.steps)).cos()
        return rising.minimum(falling) * self.flags.lr

    @TinyJit
    @Context(TRAINING=1)
    def step(self) -> Tensor:
        flags, count = self.flags, self.text.shape[0] - self.net.options.context
        self.steps_done.assign(self.steps_done + 1)
        self.optimiser.lr.assign(self.learning_rate(self.steps_done))
        loss = self.loss(self.text, Tensor.randint(flags.batch, 1, low=0, high=count))
        self.optimiser.zero_grad()
        loss.backward()
        return loss.realize(*self.optimiser.schedule_step())

    @TinyJit
    def _validate(self, text: Tensor, begins: Tensor) -> None:
        self.total.assign(self.total + self.loss(text, begins)).realize()

    def validation(self, text: Tensor) -> float:
        """The mean loss over a text's whole passages, one after the other; what does not fill a batch is left out."""
        context = self.net.options.context
        begins = list(range(0, text.shape[0] - context, context))
        batch = min(VALIDATION_BATCH, len(begins))
        parts = [begins[i:i + batch] for i in range(0, len(begins) - batch + 1, batch)]
        self.total.assign(Tensor([0.0])).realize()
        for part in parts:
            self._validate(text, Tensor(part).reshape(-1, 1).realize())
        return self.total.item() / len(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="the file to learn from")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=12, help="passages in a step")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128, help="numbers for each character")
    parser.add_argument("--heads", type=int, default=4, help="divides the width")
    parser.add_argument("--context", type=int, default=64, help="characters in a passage")
    parser.add_argument("--lr", type=float, default=2e-3, help="the largest learning rate")
    parser.add_argument("--warmup", type=int, default=100, help="steps until it is reached")
    parser.add_argument("--print-every", type=int, default=100, help="steps between two looks at the loss")
    parser.add_argument("--out", default="chargpt.safetensors", help="where to keep what was learned")
    parser.add_argument("--seed", type=int, help="of the random numbers, else a fresh one")
    parser.add_argument("--json", action="store_true", help="print a summary as one JSON object")
    flags = parser.parse_args()
    with open(flags.text, "rb") as file:
        data = file.read()
    held_out = len(data) // 10
    if held_out <= flags.context:
        print(f"chargpt: {flags.text} is too short for passages of {flags.context} characters", file=sys.stderr)
        return 1
    if flags.seed is not None:
        Tensor.manual_seed(flags.seed)

    letters = Letters(data)
    train, validation = (Tensor(letters.encode(part)).realize() for part in (data[:-held_out], data[-held_out:]))
    net = Gpt(GptOptions(len(letters), flags.layers, flags.width, flags.heads, flags.context))
    trainer = Trainer(net, train, flags)

    begin, loss, first_step_s, step_ms = time.perf_counter(), math.nan, 0.0, 0.0
    for step in range(1, flags.steps + 1):
        result = trainer.step()
        if step != 1 and step % flags.print_every != 0 and step != flags.steps:
            continue
        loss, seconds = result.item(), time.perf_counter() - begin
        if step == 1:  # compiles
            first_step_s = seconds
        else:
            step_ms = 1e3 * (seconds - first_step_s) / (step - 1)
        print(f"step {step}  loss {loss:.4f}  {step_ms or 1e3 * seconds:.1f} ms/step", file=sys.stderr)
    outcome = {"steps": flags.steps, "first_step_s": first_step_s, "step_ms": step_ms, "loss": loss,
               "validation": trainer.validation(validation)}
    save(flags.out, net, letters)
    if flags.json:
        print(json.dumps(outcome))
    else:
        print(f"validation loss {outcome['validation']:.4f} after {flags.steps} steps; kept in {flags.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
