"""Operators that take or put elements by their places, and that sort."""

from __future__ import annotations

import math

import numpy as np

from outboard import Tensor, dtypes
from outboard.onnx.registry import op

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _from_start(indices: Tensor, dim: int) -> Tensor:
    """Negative ones count from the end."""
    return (indices < 0).where(indices + dim, indices)


@op("Gather")
def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    index = [slice(None)] * x.ndim
    index[axis] = indices
    return x[tuple(index)]


@op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(x: Tensor, indices: Tensor) -> Tensor:
    return x[..., indices]


@op("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return x.gather(axis, _from_start(indices, x.shape[axis]))


@op("GatherND")
def gather_nd(x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    batch, depth = x.shape[:batch_dims], indices.shape[-1]
    rest = indices.shape[batch_dims:-1]
    # All batch axes are one, and its place is one more index.
    x = x.reshape(math.prod(batch), *x.shape[batch_dims:])
    indices = indices.reshape(math.prod(batch), math.prod(rest), depth)
    places = Tensor.arange(math.prod(batch)).reshape(-1, 1).expand(indices.shape[:2])
    taken = x[(places, *(indices[:, :, i] for i in range(depth)))]
    return taken.reshape(*batch, *rest, *x.shape[1 + depth :])


@op("Scatter", "ScatterElements")
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none") -> Tensor:
    indices = _from_start(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, indices, updates)
    return x.scatter_reduce(axis, indices, updates, _REDUCTIONS[reduction])


@op("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none") -> Tensor:
    depth, shape = indices.shape[-1], x.shape
    rows, row = math.prod(shape[:depth]), math.prod(shape[depth:])
    flat = Tensor.zeros(math.prod(indices.shape[:-1]), dtype=dtypes.int64)
    for i in range(depth):
        flat = flat * shape[i] + _from_start(indices[..., i], shape[i]).reshape(-1)
    flat = flat.reshape(-1, 1).expand(flat.shape[0], row)
    x, updates = x.reshape(rows, row), updates.reshape(flat.shape)
    if reduction == "none":
        return x.scatter(0, flat, updates).reshape(shape)
    return x.scatter_reduce(0, flat, updates, _REDUCTIONS[reduction]).reshape(shape)


@op("NonZero", host=(0,))
def non_zero(x: np.ndarray) -> Tensor:
    """How many there are is the shape of the result: the value is fetched."""
    return Tensor(np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1))


@op("Compress", host=(1,))
def compress(x: Tensor, condition: np.ndarray, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = x.flatten(), 0
    index = [slice(None)] * x.ndim
    index[axis] = Tensor(np.flatnonzero(condition).astype(np.int32))
    return x[tuple(index)]


@op("OneHot", host=(1,))
def one_hot(indices: Tensor, depth: np.ndarray, values: Tensor, axis: int = -1) -> Tensor:
    depth = int(depth.reshape(-1)[0])
    axis += indices.ndim + 1 if axis < 0 else 0
    indices = _from_start(indices, depth).unsqueeze(axis)
    places = Tensor.arange(depth).reshape(-1, *(1,) * (indices.ndim - 1 - axis))
    return (indices == places).where(values[1], values[0])


@op("TopK", host=(1,))
def top_k(x: Tensor, k, axis: int = -1, largest: int = 1, sorted: int = 1):  # noqa: A002
    count = int(k if isinstance(k, int) else k.reshape(-1)[0])
    values, places = x.topk(count, axis, bool(largest), bool(sorted))
    return values, places.cast(dtypes.int64)


@op("Unique", host=(0,))
def unique(x: np.ndarray, axis: int | None = None, sorted: int = 1):  # noqa: A002
    """How many there are is the shape of the result: the value is fetched."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    values, first, inverse, counts = np.unique(x, True, True, True, axis)
    order = np.arange(len(first)) if sorted else np.argsort(first)
    rank = np.argsort(order)
    parts = values.take(order, axis), first[order], rank[inverse.reshape(-1)], counts[order]
    return tuple(Tensor(np.ascontiguousarray(part)) for part in parts)
