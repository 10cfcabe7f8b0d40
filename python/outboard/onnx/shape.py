"""Operators that move elements, or make them: shapes, slices, pads, ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from outboard import Tensor, dtypes
from outboard.onnx.registry import op
from outboard.onnx.values import Constant, dtype_of, ints, slice_index


def torch_pads(pads: Sequence[int]) -> tuple[int, ...]:
    """ONNX has all beginnings, then all ends; Tensor has pairs, the last axis first."""
    axes = len(pads) // 2
    return tuple(pad for axis in reversed(range(axes)) for pad in (pads[axis], pads[axis + axes]))


@op("Constant", constants=True)
def constant(value=None, sparse_value=None, value_float=None, value_floats=None, value_int=None, value_ints=None):
    if value is not None:
        return value
    if sparse_value is not None:
        return sparse_value
    if value_float is not None or value_floats is not None:
        return Constant(np.array(value_float if value_floats is None else value_floats, np.float32))
    return Constant(np.array(value_int if value_ints is None else value_ints, np.int64))


@op("ConstantOfShape", host=(0,), constants=True)
def constant_of_shape(shape, value: Constant | None = None):
    value = Constant(np.zeros(1, np.float32)) if value is None else value
    dims = ints(shape)
    if dtypes.is_float(value.dtype) and value.array.dtype.kind != "f":
        return value.tensor.reshape((1,) * len(dims)).expand(dims)
    return Tensor.full(tuple(dims), value.array.reshape(-1)[0].item(), dtype=value.dtype)


@op("Shape")
def shape_(x: Tensor, start: int = 0, end: int | None = None) -> Constant:
    return Constant(np.array(x.shape[start:end], np.int64))


@op("Size")
def size(x: Tensor) -> Constant:
    return Constant(np.array(math.prod(x.shape), np.int64))


@op("Range", host=(0, 1, 2))
def range_(start, limit, delta) -> Tensor:
    begin, end, step, dtype = start.item(), limit.item(), delta.item(), Constant(start).dtype
    if dtypes.is_int(dtype):
        count, computed_in = -((begin - end) // step), dtypes.int64
    else:
        count, computed_in = math.ceil((end - begin) / step), dtypes.float64 if dtype == dtypes.float64 else dtypes.float32
    return (Tensor.arange(max(0, count), dtype=computed_in) * step + begin).cast(dtype)


@op("EyeLike")
def eye_like(x: Tensor, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = (Tensor.arange(n) for n in x.shape)
    ones = rows.reshape(-1, 1) + k == columns
    return ones.cast(x.dtype if dtype is None else dtype_of(dtype))


@op("Trilu", host=(1,))
def trilu(x: Tensor, k=None, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(k)
    return x.triu(diagonal) if upper else x.tril(diagonal)


@op("Reshape", host=(1,))
def reshape(x: Tensor, shape, allowzero: int = 0) -> Tensor:
    dims = ints(shape)
    return x.reshape([x.shape[i] if dim == 0 and not allowzero else dim for i, dim in enumerate(dims)])


@op("Flatten")
def flatten(x: Tensor, axis: int = 1) -> Tensor:
    axis += x.ndim if axis < 0 else 0
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Expand", host=(1,))
def expand(x: Tensor, shape) -> Tensor:
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(ints(shape))))


@op("Transpose")
def transpose(x: Tensor, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(tuple(range(x.ndim)[::-1] if perm is None else perm))


@op("Squeeze", host=(1,))
def squeeze(x: Tensor, axes=None) -> Tensor:
    if axes is None:
        return x.squeeze()
    gone = {axis % x.ndim for axis in ints(axes)}
    if any(x.shape[axis] != 1 for axis in gone):
        raise ValueError(f"Squeeze of axes {sorted(gone)}: one of {x.shape} is longer than 1")
    return x.reshape([dim for axis, dim in enumerate(x.shape) if axis not in gone])


@op("Unsqueeze", host=(1,))
def unsqueeze(x: Tensor, axes) -> Tensor:
    rank = x.ndim + len(ints(axes))
    new, dims = {axis % rank for axis in ints(axes)}, iter(x.shape)
    return x.reshape([1 if axis in new else next(dims) for axis in range(rank)])


@op("Tile", host=(1, 2))
def tile_1(x: Tensor, tiles, axis) -> Tensor:
    repeats = [1] * x.ndim
    repeats[int(axis)] = int(tiles)
    return x.repeat(repeats)


@op("Tile", since=6, host=(1,))
def tile(x: Tensor, repeats) -> Tensor:
    return x.repeat(ints(repeats))


@op("Concat")
def concat(*parts: Tensor, axis: int = 1) -> Tensor:
    return parts[0].cat(*parts[1:], dim=axis)


@op("Slice", host=(1, 2, 3, 4))
def slice_(x: Tensor, starts, ends, axes=None, steps=None) -> Tensor:
    return x[slice_index(x.shape, starts, ends, axes, steps)]


@op("Split", host=(1,))
def split(x: Tensor, split=None, axis: int = 0, num_outputs: int | None = None, outputs: int = 1):  # noqa: A002
    if split is not None:
        return tuple(x.split(ints(split), axis))
    count = outputs if num_outputs is None else num_outputs
    each = -(-x.shape[axis] // count)  # the last one may be smaller
    sizes = [min(each, max(0, x.shape[axis] - i * each)) for i in range(count)]
    return tuple(x.split(sizes, axis))


@op("Pad", host=(1, 3))
def pad(x: Tensor, pads, constant_value: Tensor | None = None, axes=None, mode: str = "constant", value: float = 0.0):
    pads = ints(pads)
    axes = range(x.ndim) if axes is None else ints(axes)
    both = [0] * (2 * x.ndim)
    for i, axis in enumerate(axes):
        both[axis % x.ndim], both[axis % x.ndim + x.ndim] = pads[i], pads[i + len(pads) // 2]
    if mode != "constant":
        return _pad_by_copies(x, both, mode)
    padded = _pad_or_crop(x, both, value if constant_value is None else 0)
    if constant_value is None:
        return padded
    inside = _pad_or_crop(Tensor.ones(x.shape, dtype=dtypes.bool), both, 0)
    return inside.where(padded, constant_value.reshape(()))


def _pad_or_crop(x: Tensor, pads: Sequence[int], value: float) -> Tensor:
    """Negative pads take elements away."""
    sides = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    x = x.shrink(tuple((max(0, -a), n - max(0, -b)) for (a, b), n in zip(sides, x.shape, strict=True)))
    return x.pad(tuple((max(0, a), max(0, b)) for a, b in sides), value=value)


def _pad_by_copies(x: Tensor, pads: Sequence[int], mode: str) -> Tensor:
    """Axis by axis, from the elements at the places that `mode` says."""
    for axis, dim in enumerate(x.shape):
        before, after = pads[axis], pads[axis + x.ndim]
        if before == after == 0:
            continue
        places = np.arange(-before, dim + after)
        if mode == "edge":
            places = places.clip(0, dim - 1)
        elif mode == "wrap":
            places %= dim
        elif mode == "reflect":
            period = max(1, 2 * (dim - 1))
            places %= period
            places = np.where(places >= dim, period - places, places)
        else:
            raise NotImplementedError(f"Pad with mode {mode!r}")
        index = [slice(None)] * x.ndim
        index[axis] = Tensor(places.astype(np.int32))
        x = x[tuple(index)]
    return x


@op("CenterCropPad", host=(1,))
def center_crop_pad(x: Tensor, shape, axes=None) -> Tensor:
    pads = [0] * (2 * x.ndim)
    for axis, wanted in zip(range(x.ndim) if axes is None else ints(axes), ints(shape), strict=True):
        more = wanted - x.shape[axis]
        before = more // 2 if more >= 0 else -(-more // 2)
        pads[axis % x.ndim], pads[axis % x.ndim + x.ndim] = before, more - before
    return _pad_or_crop(x, pads, 0)


@op("DepthToSpace")
def depth_to_space(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        x = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // (b * b), h * b, w * b)


@op("SpaceToDepth")
def space_to_depth(x: Tensor, blocksize: int) -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


@op("ReverseSequence")
def reverse_sequence(x: Tensor, sequence_lens: Tensor, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    def along(values: Tensor, axis: int) -> Tensor:
        return values.reshape([-1 if i == axis else 1 for i in range(x.ndim)])

    lengths = along(sequence_lens.cast(dtypes.int32), batch_axis)
    places = along(Tensor.arange(x.shape[time_axis]), time_axis)
    return x.gather(time_axis, (places < lengths).where(lengths - 1 - places, places).expand(x.shape))
