"""Runs models of ONNX by the operators of Tensor.

    run = OnnxRunner("model.onnx")
    run({"x": Tensor.rand(1, 3, 224, 224)})["y"].numpy()
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from outboard import Tensor, _core
from outboard.onnx import (  # noqa: F401: they declare operators
    control,
    elementwise,
    fold,
    indexing,
    linear,
    loss,
    norm,
    quantise,
    random,
    recurrent,
    reduce,
    resize,
    sequence,
    shape,
    signal,
    text,
    training,
    vision,
    windows,
)
from outboard.onnx.graph import Reader
from outboard.onnx.values import Constant, array_type_of, dtype_of, tensor_of


@dataclasses.dataclass(frozen=True)
class OnnxValue:
    """What a model says about an input. A dimension is a number, or the name of one that all inputs share."""

    shape: tuple[str | int | None, ...]
    dtype: Any
    is_optional: bool
    is_sequence: bool


class OnnxRunner:
    """A model, loaded once and called as a function of its inputs.

    Its weights go to the cloud with the first call and stay there. The operators of a call are recorded, not computed:
    the results are Tensors like all others.

    model: a path, or the bytes of a file (then no data may lie in other files); a Tensor of bytes is fetched.
    Raises ValueError for what is no model; UnsupportedModel, which names everything that is missing.
    """

    def __init__(self, model: str | os.PathLike[str] | bytes | Tensor) -> None:
        folder = None
        if isinstance(model, Tensor):
            proto = _core.onnx.ModelProto.parse(model.numpy())
        elif isinstance(model, (bytes, bytearray, memoryview)):
            proto = _core.onnx.ModelProto.parse(np.frombuffer(model, np.uint8))
        else:
            path = pathlib.Path(model)
            folder = path.parent
            proto = _parse_file(path)
        reader = Reader(proto, folder)
        self.graph = reader.graph(proto.graph)
        reader.raise_if_missing()
        needed = [value for value in self.graph.inputs if value.name not in self.graph.constants]
        self.graph_inputs = {value.name: _value_of_type(value.type) for value in needed}
        self.graph_outputs = tuple(self.graph.outputs)
        self.opset = reader.opsets.get("", 1)

    def __repr__(self) -> str:
        return f"<OnnxRunner, {', '.join(self.graph_inputs)} to {', '.join(self.graph_outputs)}>"

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """A Tensor for each output; a list of them for a sequence, None for an optional value that is not there.

        inputs: by name Tensors, or what Tensor() takes; lists of these for sequences. An input that has a value in the
        model may be left out. What shapes depend on is fetched where it is no array or list of numbers.
        """
        unknown = inputs.keys() - set(self.graph.input_names)
        if unknown:
            known = ", ".join(self.graph_inputs)
            raise RuntimeError(f"the model has no input {', '.join(sorted(unknown))}; it has {known}")
        missing = [name for name, spec in self.graph_inputs.items() if name not in inputs and not _optional(spec)]
        if missing:
            raise RuntimeError(f"no value for the input {', '.join(missing)}")
        dims: dict[str, int] = {}
        values = {name: None for name in self.graph_inputs}
        for name, value in inputs.items():
            values[name] = _checked(name, value, self.graph_inputs.get(name), dims)
        return dict(zip(self.graph_outputs, map(tensor_of, self.graph.run(values))))


def _parse_file(path: pathlib.Path) -> Any:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise ValueError(f"{path} is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return _core.onnx.ModelProto.parse(np.frombuffer(mapped, np.uint8))


def _value_of_type(proto: Any) -> OnnxValue | None:
    if proto is None:
        return None
    optional = proto.kind == "optional"
    proto = proto.elem_type if optional else proto
    sequence_ = proto.kind == "sequence"
    proto = proto.elem_type if sequence_ else proto
    if proto.kind != "tensor":
        return None
    dims = proto.shape
    return OnnxValue(tuple(dims) if dims is not None else (), dtype_of(proto.elem_type), optional, sequence_)


def _optional(spec: OnnxValue | None) -> bool:
    return spec is not None and spec.is_optional


def _checked(name: str, value: Any, spec: OnnxValue | None, dims: dict[str, int]) -> Any:
    if value is None or spec is None:
        return value if value is None or isinstance(value, Tensor) else _constant(value, None)
    if spec.is_sequence:
        if isinstance(value, (Tensor, np.ndarray)) or not isinstance(value, Sequence):
            raise RuntimeError(f"the input {name} is a sequence: a list of tensors, not {type(value).__name__}")
        return [part if isinstance(part, Tensor) else _constant(part, spec.dtype) for part in value]
    value = value if isinstance(value, Tensor) else _constant(value, spec.dtype)
    if value.dtype != spec.dtype:
        warnings.warn(f"the input {name} is {value.dtype}; the model says {spec.dtype}", stacklevel=3)
    shape_ = tuple(value.shape if isinstance(value, Tensor) else value.array.shape)
    if spec.shape:
        wanted = tuple(dims.setdefault(dim, n) if isinstance(dim, str) else dim for dim, n in zip(spec.shape, shape_))
        fits = len(spec.shape) == len(shape_) and all(a is None or a == b for a, b in zip(wanted, shape_))
        if not fits:
            raise RuntimeError(f"the input {name} has the shape {shape_}; the model says {spec.shape}")
    return value


def _constant(value: Any, dtype: Any) -> Constant:
    """An array of the caller: shapes may depend on it, but it is no constant of the model, so nothing is folded."""
    if not isinstance(value, np.ndarray) and dtype is not None:
        value = np.asarray(value, array_type_of(dtype))
    return Constant(np.asarray(value), foldable=False)
