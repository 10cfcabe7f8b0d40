"""A character-level GPT: the network, and the checkpoint it is kept in.

The architecture is that of GPT-2 (Radford et al., 2019): layer norms before attention and before the feed-forward part,
learned positions, the embedding used again to read the logits. chargpt.py trains it, chargpt_generate.py writes with
it.
"""
from __future__ import annotations

import dataclasses
import json

from outboard import Tensor, Variable, nn
from outboard.nn.state import get_state_dict, load_state_dict, safe_load, safe_load_metadata, safe_save


@dataclasses.dataclass
class GptOptions:
    vocabulary: int
    layers: int = 4
    width: int = 128
    heads: int = 4  # divides width
    context: int = 64


class Cache:
    """Keys and values of the tokens so far, of one block: [1, heads, context, head] each."""

    def __init__(self, options: GptOptions):
        shape = (1, options.heads, options.context, options.width // options.heads)
        self.keys, self.values = (Tensor.zeros(*shape).contiguous().realize() for _ in range(2))

    def append(self, key: Tensor, value: Tensor, place: Variable) -> tuple[Tensor, Tensor]:
        """Puts one token's at `place`; gives those of all tokens up to it."""
        here = Tensor.arange(self.keys.shape[2]).reshape(-1, 1) == place
        for all_of_them, new in ((self.keys, key), (self.values, value)):
            all_of_them.assign(here.where(new, all_of_them))
        return self.keys[:, :, :place + 1], self.values[:, :, :place + 1]


class Block:
    """[batch, time, width] -> the same."""

    def __init__(self, options: GptOptions):
        width = options.width
        self.heads = options.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x: Tensor, cache: Cache | None, place: Variable | None) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.append(k, v, place)
        mixed = q.scaled_dot_product_attention(k, v, is_causal=cache is None)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))

    def __call__(self, x: Tensor, cache: Cache | None = None, place: Variable | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), cache, place)
        return x + self.down(self.up(self.norm2(x)).gelu())


class Gpt:
    def __init__(self, options: GptOptions):
        self.options = options
        self.tokens = nn.Embedding(options.vocabulary, options.width)
        self.positions = nn.Embedding(options.context, options.width)
        self.blocks = [Block(options) for _ in range(options.layers)]
        self.norm = nn.LayerNorm(options.width)

    def logits(self, x: Tensor) -> Tensor:
        return self.norm(x) @ self.tokens.weight.transpose()

    def __call__(self, text: Tensor) -> Tensor:
        """Tokens [batch, time] -> logits [batch, time, vocabulary] of the ones after them."""
        return self.logits((self.tokens(text) + self.positions.weight[:text.shape[1]]).sequential(self.blocks))

    def next(self, token: Tensor, place: Variable, caches: list[Cache]) -> Tensor:
        """The token [1, 1] at `place`, a bound Variable -> logits [vocabulary] of the one after it."""
        x = self.tokens(token) + self.positions.weight[place:place + 1]
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, place)
        return self.logits(x).flatten()


class Letters:
    """The bytes of a text, numbered in the order of their codes."""

    def __init__(self, used: bytes):
        self.used = bytes(sorted(set(used)))
        self._to_number = bytes(max(self.used.find(code), 0) for code in range(256))

    def __len__(self) -> int:
        return len(self.used)

    def encode(self, text: bytes) -> bytes:
        """Numbers, a byte each. Raises ValueError for a byte that has none."""
        if unknown := sorted(set(text) - set(self.used)):
            raise ValueError(f"the network has not learned {bytes(unknown)!r}")
        return text.translate(self._to_number)

    def decode(self, numbers: list[int]) -> str:
        return bytes(self.used[number] for number in numbers).decode(errors="replace")


def save(path: str, net: Gpt, letters: Letters) -> None:
    header = {"letters": letters.used.hex(), "options": json.dumps(dataclasses.asdict(net.options))}
    safe_save(get_state_dict(net), path, metadata=header)


def load(path: str) -> tuple[Gpt, Letters]:
    """What save() wrote. Raises ValueError for another file."""
    header = safe_load_metadata(path)[2].get("__metadata__", {})
    if not {"letters", "options"} <= header.keys():
        raise ValueError(f"{path} was not written by chargpt.py")
    net = Gpt(GptOptions(**json.loads(header["options"])))
    load_state_dict(net, safe_load(path), verbose=False)
    return net, Letters(bytes.fromhex(header["letters"]))
