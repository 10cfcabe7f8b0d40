"""Hashes of bytes that are in the cloud: `Tensor.keccak` and `Tensor.hash`, computed there.

The permutation is Keccak-f[1600] of FIPS 202 (https://doi.org/10.6028/NIST.FIPS.202): a state of 25 lanes of 64 bits,
lane x + 5 y at (x, y), of which `rate` bytes take a block of the message each time. The 25 lanes of all messages are
one tensor, so that a step of a round is one operation, and a round a few kernels.
"""
from __future__ import annotations

import functools
import math

from outboard._core import Tensor, Variable
from outboard.dtypes import dtypes
from outboard.helpers import ceildiv

_STATE_BYTES, _LANES, _ROUNDS = 200, 25, 24
# By tinygrad's names: the rate in bytes, and the bits that end the message with the first bit of the padding.
_CONFIGURATIONS = {"sha3_224": (144, 0x06), "sha3_256": (136, 0x06), "shake_128": (168, 0x1f)}
_BLOCKS_IN_ONE_RUN = 8  # 600 kernels; of a longer message each block is a Run of its own, which is compiled once

CHUNK_BYTES = 1 << 20  # of the tree of `Tensor.hash`
_LEAF_BYTES, HASH_BYTES = 4096, 16


def keccak(self: Tensor, cfg: str | tuple[int, int] = "sha3_256") -> Tensor:
    """The hash of each row of bytes: (..., n) is (..., h), of uint8.

    cfg: "sha3_224" (h = 28), "sha3_256" (32), "shake_128" (16), or (rate, suffix): how many of the state's 200 bytes
    take bytes of the message, a multiple of 8, and the byte that ends it; h is then (200 - rate) // 2. FIPS 202 has the
    suffix 0x06 for SHA3 and 0x1f for SHAKE. A tensor of another type is hashed as its bytes.

    Lazy up to 8 blocks of `rate` bytes; for more it sends the blocks, and waits for none.
    ValueError: an unknown cfg. IndexError: no axis. RuntimeError: sizes that a Variable makes.
    """
    rate, suffix = _configuration(cfg)
    data = bytes_of(self)
    if not data.shape:
        raise IndexError("keccak: the bytes are along the last axis, and this tensor has none")
    *leading, length = _sizes(data, "keccak")
    rows = math.prod(leading)
    hash_bytes = (_STATE_BYTES - rate) // 2
    if rows == 0:
        return Tensor.zeros(*leading, hash_bytes, dtype=dtypes.uint8)
    blocks = _blocks(data.reshape(rows, length), rate, suffix)
    state = _absorb(blocks)
    return state.bitcast(dtypes.uint8)[:, :hash_bytes].reshape(*leading, hash_bytes)


def hash_of(self: Tensor) -> Tensor:
    """The 16 bytes that name this tensor's bytes: the root of a tree of SHAKE128 over chunks of 1 MiB, the last of
    which is filled up with zeros.

    The hash of a chunk is that of the hashes of its 256 leaves of 4 KiB. While there is more than one chunk, the hashes
    of all, one after the other, are the bytes of the next level. Type and shape have no part in it, and bytes that
    differ only by zeros at the end of the last chunk have one hash. The Runs are sent when it is called; it waits for
    none.
    RuntimeError: sizes that a Variable makes.
    """
    data = bytes_of(self).flatten()
    chunks = ceildiv(_sizes(data, "hash")[0], CHUNK_BYTES)
    while chunks > 1:
        data = _hash_of_chunks(data.pad_to(chunks * CHUNK_BYTES).reshape(chunks, CHUNK_BYTES)).flatten()
        chunks = ceildiv(chunks * HASH_BYTES, CHUNK_BYTES)
    return _hash_of_chunks(data.pad_to(CHUNK_BYTES).unsqueeze(0)).flatten()


def bytes_of(x: Tensor) -> Tensor:
    """Its bytes as they lie in memory: the last axis is as much longer as its elements are wider than a byte."""
    if x.dtype == dtypes.bool:
        return x.cast(dtypes.uint8)
    return x if x.dtype == dtypes.uint8 else x.bitcast(dtypes.uint8)


def _configuration(cfg: str | tuple[int, int]) -> tuple[int, int]:
    if isinstance(cfg, str):
        if cfg not in _CONFIGURATIONS:
            raise ValueError(f"keccak: cfg is {', '.join(_CONFIGURATIONS)} or (rate, suffix), not {cfg!r}")
        return _CONFIGURATIONS[cfg]
    rate, suffix = cfg
    if not 0 < rate < _STATE_BYTES or rate % 8 or not 0 < suffix < 0x80:
        raise ValueError(f"keccak: a rate is a multiple of 8 below {_STATE_BYTES}, a suffix 1 to 127, not {cfg!r}")
    return rate, suffix


def _sizes(x: Tensor, what: str) -> tuple[int, ...]:
    if not all(isinstance(size, int) for size in x.shape):
        raise RuntimeError(f"{what}: the shape {x.shape} is of a Variable where numbers are needed")
    return x.shape


def _hash_of_chunks(chunks: Tensor) -> Tensor:
    """[n, 1 MiB] to [n, 16]."""
    count = chunks.shape[0]
    return keccak(keccak(chunks.reshape(-1, _LEAF_BYTES), "shake_128").reshape(count, -1), "shake_128")


# ---- Keccak --------------------------------------------------------------------------------------


def _blocks(data: Tensor, rate: int, suffix: int) -> Tensor:
    """[rows, length] of uint8, padded (FIPS 202, 5.1), as [blocks, rows, 25] of uint64: zeros where no message goes."""
    rows, length = data.shape
    count = length // rate + 1
    fill = bytearray(count * rate - length)
    fill[0] |= suffix
    fill[-1] |= 0x80  # of one byte of fill both
    end = Tensor(bytes(fill)).reshape(1, -1).expand(rows, len(fill))
    lanes = data.cat(end, dim=1).reshape(rows, count, rate).permute(1, 0, 2).contiguous().bitcast(dtypes.uint64)
    return lanes.pad_to(count, rows, _LANES)


def _absorb(blocks: Tensor) -> Tensor:
    """[blocks, rows, 25] to the state [rows, 25] that all of them leave."""
    count, rows, _ = blocks.shape
    tables = _tables()
    if count <= _BLOCKS_IN_ONE_RUN:
        state = blocks[0]
        for i in range(count):
            state = _permuted(state if i == 0 else state ^ blocks[i], tables)
        return state
    blocks = blocks.contiguous()
    Tensor.realize(blocks, *tables)
    state = Tensor.zeros(rows, _LANES, dtype=dtypes.uint64).contiguous()
    at = Variable(f"keccak_block_of_{count}", 0, count - 1)  # a name has one range
    for i in range(count):
        place = at.bind(i)
        block = blocks.shrink(((place, place + 1), None, None)).reshape(rows, _LANES)
        state = _permuted(state ^ block, tables).realize()
    return state


def _tables() -> tuple[Tensor, Tensor, Tensor]:
    """What the rounds read: amounts to rotate by, places of the three lanes that make a new one, rounds' constants."""
    rotations, places, constants = _numbers()
    return (Tensor(rotations, dtype=dtypes.uint64), Tensor(places, dtype=dtypes.int32).reshape(3, _LANES),
            Tensor(constants, dtype=dtypes.uint64))


@functools.cache
def _numbers() -> tuple[list[int], list[int], list[int]]:
    rotations = [0] * _LANES  # FIPS 202, 3.2.2
    x, y = 1, 0
    for t in range(24):
        rotations[x + 5 * y] = (t + 1) * (t + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    # 3.2.3 moves to (x, y) what is at (x + 3 y, x); 3.2.4 reads there, and one and two places further along x.
    places = [(x + step + 3 * y) % 5 + 5 * ((x + step) % 5) for step in range(3) for y in range(5) for x in range(5)]
    constants, register = [], 1  # 3.2.5: bit 2^j - 1 of a constant is the register's next
    for _ in range(_ROUNDS):
        constant = 0
        for j in range(7):
            constant |= (register & 1) << (2 ** j - 1)
            register = register << 1 ^ (0x171 if register & 0x80 else 0)
        constants.append(constant)
    return rotations, places, constants


def _permuted(state: Tensor, tables: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Keccak-f[1600] of each row of [rows, 25]."""
    for i in range(_ROUNDS):
        state = _round(state, tables, i).contiguous()
    return state


def _round(state: Tensor, tables: tuple[Tensor, Tensor, Tensor], i: int) -> Tensor:
    rotations, places, constants = tables
    columns = state.reshape(-1, 5, 5)
    parity = columns[:, 0]
    for y in range(1, 5):
        parity = parity ^ columns[:, y]
    effect = parity.roll(1, 1) ^ _rotated(parity.roll(-1, 1), 1)
    mixed = (columns ^ effect.unsqueeze(1)).reshape(-1, _LANES)
    turned = _rotated(mixed, rotations)
    lane, next_lane, one_after = (turned[:, places[k]] for k in range(3))
    return lane ^ (next_lane.bitwise_not() & one_after) ^ constants[i:i + 1].pad_to(_LANES)


def _rotated(x: Tensor, amount: Tensor | int) -> Tensor:
    return x.lshift(amount) | x.rshift(64 - amount)  # by 64 it is 0
