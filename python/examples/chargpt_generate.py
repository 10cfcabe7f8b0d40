#!/usr/bin/env python3
"""Writes with the network that chargpt.py trained.

    chargpt_generate.py chargpt.safetensors --prompt "ROMEO:" --count 500

The keys and values of the characters so far are kept in the cloud, so a character costs one position, and the place of
the character is a Variable: one graph, compiled once, serves every place. When the context is full, its second half is
read again from the beginning.
"""
import argparse
import sys
import time

from outboard import Tensor, TinyJit, Variable

import gpt


class Writer:
    """Characters one after the other, drawn with what the network gives as their probabilities."""

    def __init__(self, net: gpt.Gpt, temperature: float):
        self.net, self.temperature = net, temperature
        self.caches = [gpt.Cache(net.options) for _ in net.blocks]
        self.place = Variable("place", 0, net.options.context - 1)
        self.seen: list[int] = []  # what the caches hold

    @TinyJit
    def _next(self, token: Tensor, place: Variable) -> Tensor:
        logits = self.net.next(token, place, self.caches)
        # The largest of logits with Gumbel noise falls on each letter with its probability.
        noise = -(-Tensor.rand(*logits.shape).maximum(1e-9).log()).log()
        return (logits + noise * self.temperature).argmax().realize()

    def read(self, number: int) -> Tensor:
        """Reads one character; the next one, on its way."""
        if len(self.seen) == self.net.options.context:
            again, self.seen = self.seen[len(self.seen) // 2:], []
            for earlier in again:
                self.read(earlier)
        answer = self._next(Tensor([[number]]).realize(), self.place.bind(len(self.seen)))
        self.seen.append(number)
        return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="what chargpt.py wrote")
    parser.add_argument("--prompt", default="\n", help="what the text begins with")
    parser.add_argument("--count", type=int, default=500, help="characters to write")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 writes the likeliest, 1 as it has learned")
    parser.add_argument("--seed", type=int, help="of the random numbers, else a fresh one")
    flags = parser.parse_args()
    if flags.seed is not None:
        Tensor.manual_seed(flags.seed)
    try:
        net, letters = gpt.load(flags.checkpoint)
        prompt = letters.encode(flags.prompt.encode())
    except (OSError, ValueError) as error:
        print(f"chargpt_generate: {error}", file=sys.stderr)
        return 1
    if not prompt:
        print("chargpt_generate: the prompt is empty", file=sys.stderr)
        return 1

    writer = Writer(net, flags.temperature)
    for number in prompt[:-1]:
        writer.read(number)
    number, begin = prompt[-1], time.perf_counter()
    print(flags.prompt, end="", flush=True)
    for _ in range(flags.count):
        number = int(writer.read(number).item())
        print(letters.decode([number]), end="", flush=True)
    print()
    milliseconds = 1e3 * (time.perf_counter() - begin) / max(flags.count, 1)
    print(f"{flags.count} characters, {milliseconds:.1f} ms each", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
