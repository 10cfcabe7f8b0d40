"""Tensors of an ONNX file: their types, and values that are known on this machine.

A Constant is an array of NumPy together with the Tensor made of it, once one is asked for. What shapes are computed
from (initialisers, what Shape says) stays constant through a model, so that no shape waits for the cloud.
"""

from __future__ import annotations

import math
import mmap
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from outboard import Tensor, _core, dtypes

# By TensorProto.data_type: our type, and how an element lies in a file. bfloat16 and the 8-bit floats are seen as
# integers here, for NumPy has no such types.
_TYPES: dict[int, tuple[Any, str]] = {
    1: (dtypes.float32, "<f4"),
    2: (dtypes.uint8, "u1"),
    3: (dtypes.int8, "i1"),
    4: (dtypes.uint16, "<u2"),
    5: (dtypes.int16, "<i2"),
    6: (dtypes.int32, "<i4"),
    7: (dtypes.int64, "<i8"),
    9: (dtypes.bool, "?"),
    10: (dtypes.float16, "<f2"),
    11: (dtypes.float64, "<f8"),
    12: (dtypes.uint32, "<u4"),
    13: (dtypes.uint64, "<u8"),
    16: (dtypes.bfloat16, "<u2"),
    17: (dtypes.fp8e4m3, "u1"),
    19: (dtypes.fp8e5m2, "u1"),
}
_NAMES = {
    0: "undefined", 8: "string", 14: "complex64", 15: "complex128", 18: "float8e4m3fnuz", 20: "float8e5m2fnuz",
    21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0",
}  # fmt: skip
_BITS = (dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)


class UnsupportedType(NotImplementedError):
    """A type of ONNX that tensors here do not have: strings, complex numbers, 4-bit integers."""


def array_type_of(dtype: Any) -> str | None:
    """NumPy's type for a dtype; None where it has none."""
    return next((stored for ours, stored in _TYPES.values() if ours == dtype and ours not in _BITS), None)


def dtype_of(data_type: int) -> Any:
    """The dtype of a TensorProto.data_type."""
    if data_type not in _TYPES:
        raise UnsupportedType(f"tensors here have no type {_NAMES.get(data_type, data_type)}")
    return _TYPES[data_type][0]


class Constant:
    """A value that is known here. `dtype` is the tensor's; of bfloat16 and 8-bit floats `array` holds the bits.

    foldable: whether what follows from it is known, too: a constant of the model, not an input of one call.
    """

    __slots__ = ("array", "dtype", "foldable", "_tensor")

    def __init__(self, array: np.ndarray, dtype: Any = None, foldable: bool = True) -> None:
        self.array = array
        self.dtype = dtype if dtype is not None else _dtype_of_array(array)
        self.foldable = foldable and self.dtype not in _BITS
        self._tensor: Tensor | None = None

    @property
    def tensor(self) -> Tensor:
        """The same value in the cloud, sent once."""
        if self._tensor is None:
            # Of one element too, so that it is an argument of kernels rather than written into them.
            self._tensor = Tensor(np.ascontiguousarray(self.array).reshape(self.array.shape))
            if self.dtype in _BITS:
                self._tensor = self._tensor.bitcast(self.dtype)
        return self._tensor


def _dtype_of_array(array: np.ndarray) -> Any:
    kind = array.dtype.newbyteorder("=")
    for dtype, stored in _TYPES.values():
        if dtype not in _BITS and np.dtype(stored) == kind:
            return dtype
    raise UnsupportedType(f"tensors here have no type {array.dtype}")


def constant_of(proto: Any, folder: pathlib.Path | None = None) -> Constant:
    """The value of a TensorProto. Data in another file is looked for in `folder` and mapped, not read.

    Raises ValueError where the data does not fit the shape or lies outside of `folder`; UnsupportedType.
    """
    dtype, stored = dtype_of(proto.data_type), _TYPES[proto.data_type][1]
    dims = proto.dims
    if any(dim < 0 for dim in dims):
        raise ValueError(f"tensor {proto.name!r} has a negative dimension in {dims}")
    count = math.prod(dims)
    if proto.external_data is not None:
        array = _external(proto, np.dtype(stored), count, folder)
    elif proto.raw_data is not None:
        if proto.raw_data.size != count * np.dtype(stored).itemsize:
            raise ValueError(f"tensor {proto.name!r} of shape {dims} has {proto.raw_data.size} bytes")
        array = proto.raw_data.view(stored)
    else:
        numbers = proto.numbers if proto.numbers is not None else np.zeros(0, stored)
        if dtype == dtypes.float16:  # as bits, in 32-bit integers
            numbers = numbers.astype(np.uint16).view(np.float16)
        array = numbers.astype(stored, copy=False)
    if array.size != count:
        raise ValueError(f"tensor {proto.name!r} of shape {dims} has {array.size} elements")
    return Constant(array.reshape(dims), dtype)


def _external(proto: Any, stored: np.dtype, count: int, folder: pathlib.Path | None) -> np.ndarray:
    where = proto.external_data
    if folder is None:
        raise ValueError(f"tensor {proto.name!r} lies in another file: load the model by its path")
    path = (folder / where.get("location", "")).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"tensor {proto.name!r} lies outside of the model's folder: {where.get('location')}")
    offset = int(where.get("offset", 0))
    if int(where.get("length", count * stored.itemsize)) != count * stored.itemsize or offset < 0:
        raise ValueError(f"tensor {proto.name!r} of shape {proto.dims}: its length or offset in {path.name} is wrong")
    if count == 0:
        return np.zeros(0, stored)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        mapped_bytes = len(mapped)
    if offset + count * stored.itemsize > mapped_bytes:
        raise ValueError(f"tensor {proto.name!r} ends behind the end of {path.name}")
    return np.memmap(path, stored, "r", offset, (count,))


def sparse_constant_of(proto: Any, folder: pathlib.Path | None = None) -> Constant:
    """The dense value of a SparseTensorProto."""
    values, indices = constant_of(proto.values, folder), constant_of(proto.indices, folder).array
    dense = np.zeros(proto.dims, values.array.dtype)
    flat = np.ravel_multi_index(tuple(indices.T), proto.dims) if indices.ndim == 2 else indices
    dense.reshape(-1)[flat] = values.array  # raises IndexError for a place outside
    return Constant(dense, values.dtype)


def value_of(value: Any) -> np.ndarray:
    """The array of a value, which is fetched where it is not known here."""
    if isinstance(value, Constant):
        return value.array
    return value.numpy()


def tensor_of(value: Any) -> Any:
    """The value as operators take it: Constants become Tensors, also within lists."""
    if isinstance(value, Constant):
        return value.tensor
    if isinstance(value, list):
        return [tensor_of(part) for part in value]
    return value


def ints(values: Sequence[int]) -> list[int]:
    """As Python's integers, whether an attribute or an array said them, even if of no axis."""
    return [int(value) for value in np.asarray(values).reshape(-1)]


def slice_index(shape: Sequence[int], starts, ends, axes=None, steps=None) -> tuple[slice, ...]:
    """The index that Slice means by its inputs."""
    starts, ends = ints(starts), ints(ends)
    axes = range(len(starts)) if axes is None else ints(axes)
    steps = [1] * len(starts) if steps is None else ints(steps)
    index = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # Backwards an end before the first element cannot be said by a negative number.
        index[axis] = slice(start, None if step < 0 and end < -shape[axis] else end, step)
    return tuple(index)
