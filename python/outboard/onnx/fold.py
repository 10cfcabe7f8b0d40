"""Operators of small constants, by NumPy on this machine: what models compute shapes with.

A function gets arrays and the node's attributes, and returns an array, or None where it would rather not.
"""

from __future__ import annotations

import numpy as np

from outboard.onnx.registry import fold
from outboard.onnx.values import array_type_of, dtype_of, ints, slice_index

for _name, _function in {
    "Add": np.add, "And": np.logical_and, "Equal": np.equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal, "Identity": np.array, "Less": np.less, "LessOrEqual": np.less_equal,
    "Mul": np.multiply, "Neg": np.negative, "Not": np.logical_not, "Or": np.logical_or, "Sub": np.subtract,
    "Where": np.where, "Ceil": np.ceil, "Floor": np.floor, "Sqrt": np.sqrt,
}.items():  # fmt: skip
    fold(_name)(_function)


@fold("Div")
def div(x, y):
    if x.dtype.kind == "f":
        return x / y
    if (y == 0).any():
        return None
    quotient = np.abs(x) // np.abs(y)
    return (quotient * np.sign(x) * np.sign(y)).astype(x.dtype)


@fold("Mod")
def mod(x, y, fmod=0):
    return None if (y == 0).any() else np.fmod(x, y) if fmod else np.mod(x, y)


@fold("Max")
def max_(*values):
    return np.max(np.broadcast_arrays(*values), 0)


@fold("Min")
def min_(*values):
    return np.min(np.broadcast_arrays(*values), 0)


@fold("Cast")
def cast(x, to, saturate=1):
    stored = array_type_of(dtype_of(to))
    return None if stored is None else x.astype(stored)


@fold("Concat")
def concat(*parts, axis=1):
    return np.concatenate(parts, axis)


@fold("Gather")
def gather(x, indices, axis=0):
    return np.take(x, indices, axis)


@fold("Reshape")
def reshape(x, shape, allowzero=0):
    return x.reshape([x.shape[i] if dim == 0 and not allowzero else dim for i, dim in enumerate(shape)])


@fold("Shape")
def shape_(x, start=0, end=None):
    return np.array(x.shape[start:end], np.int64)


@fold("Size")
def size(x):
    return np.array(x.size, np.int64)


@fold("Slice")
def slice_(x, starts, ends, axes=None, steps=None):
    return x[slice_index(x.shape, starts, ends, axes, steps)]


@fold("Squeeze")
def squeeze(x, axes=None):
    return x.squeeze(None if axes is None else tuple(ints(axes)))


@fold("Unsqueeze")
def unsqueeze(x, axes):
    return np.expand_dims(x, tuple(ints(axes)))


@fold("Range")
def range_(start, limit, delta):
    return np.arange(start, limit, delta, start.dtype)


@fold("ReduceProd")
def reduce_prod(x, axes=None, keepdims=1):
    return np.prod(x, None if axes is None else tuple(ints(axes)), x.dtype, keepdims=bool(keepdims))


@fold("Transpose")
def transpose(x, perm=None):
    return x.transpose(perm)
