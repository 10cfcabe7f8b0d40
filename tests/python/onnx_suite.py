"""The tests that come with ONNX: folders of a model.onnx and, for each set of data, input_<i>.pb and output_<i>.pb."""

from __future__ import annotations

import importlib.util
import math
import os
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from outboard import Tensor, _core, dtypes
from outboard.onnx import OnnxRunner
from outboard.onnx.values import Constant, UnsupportedType, constant_of, dtype_of, tensor_of

DATA = pathlib.Path("/usr/share/libonnx-testdata/data")
# Newer tests, and models, in the package `onnx`, of which nothing is imported.
PACKAGE = pathlib.Path(importlib.util.find_spec("onnx").submodule_search_locations[0]) / "backend/test/data"
# Which part of the tests this program runs.
SHARD, SHARDS = map(int, os.environ.get("OUTBOARD_SHARD", "0/1").split("/"))
# Those of ONNX's own runner.
RELATIVE, ABSOLUTE = 1e-3, 1e-7
# bfloat16 and the 8-bit floats, by their TensorProto.data_type.
NOT_NUMPYS = {number: dtype_of(number) for number in (16, 17, 19)}


class Case(NamedTuple):
    """A test whose results are recorded, but not asked for yet."""

    name: str
    results: list[Any]
    expected: list[Any]


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and contents of the fields of a protobuf message. Debian has no onnx-data.proto for these few."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            place += size
            yield key >> 3, message[place - size : place]
        else:
            raise ValueError(f"wire type {key & 7}")


def read_value(message: bytes, kind: str, data_type: Any = None) -> Any:
    """A value of a .pb file, by the type that the model gives it: a Constant, a list of them, or None."""
    if kind == "tensor":
        value = constant_of(_core.onnx.TensorProto.parse(message))
        # NumPy, which wrote the files, has no such types: there they are integers.
        bits = data_type in NOT_NUMPYS and value.dtype in (dtypes.uint8, dtypes.uint16)
        return Constant(value.array, NOT_NUMPYS[data_type]) if bits else value
    if kind == "sequence":  # SequenceProto: 3 tensors, 5 sequences
        return [read_value(part, "tensor" if n == 3 else "sequence") for n, part in fields(message) if n in (3, 5)]
    for number, part in fields(message):  # OptionalProto: 3 a tensor, 5 a sequence
        if number in (3, 5):
            return read_value(part, "tensor" if number == 3 else "sequence")
    return None


def record(folder: pathlib.Path) -> Iterator[Case]:
    """Runs a test with each set of data, up to the values."""
    runner = OnnxRunner(folder / "model.onnx")
    for data in sorted(folder.glob("test_data_set_*")):

        def values(which: str, infos: Iterable[Any]) -> list[Any]:
            return [
                read_value((data / f"{which}_{i}.pb").read_bytes(), info.type.kind, info.type.elem_type)
                for i, info in enumerate(infos)
                if (data / f"{which}_{i}.pb").exists()
            ]

        infos = [info for info in runner.graph.inputs if info.name in runner.graph_inputs]
        inputs = {info.name: _given(value) for info, value in zip(infos, values("input", infos))}
        results = runner(inputs)
        outputs = _core.onnx.ModelProto.parse((folder / "model.onnx").read_bytes()).graph.output
        expected = values("output", outputs)
        yield Case(folder.name, [results[info.name] for info in outputs], expected)


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(part) for part in value]
    return tensor_of(value) if value is None or value.dtype in NOT_NUMPYS.values() else value.array


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """All that are in a list of results."""
    for value in values:
        if isinstance(value, list):
            yield from tensors(value)
        elif isinstance(value, Tensor):
            yield value


def difference(got: Any, want: Any) -> str | None:
    """What is wrong with a result, or None."""
    if want is None or isinstance(want, list):
        if want is None or not isinstance(got, list):
            return None if got is None and want is None else f"{got} instead of {want}"
        if len(got) != len(want):
            return f"{len(got)} instead of {len(want)} elements"
        return next((wrong for pair in zip(got, want) if (wrong := difference(*pair))), None)
    if got is None:
        return "nothing"
    if got.dtype != want.dtype:
        return f"{got.dtype} instead of {want.dtype}"
    if tuple(got.shape) != want.array.shape:
        return f"shape {tuple(got.shape)} instead of {want.array.shape}"
    if math.prod(got.shape) == 0:
        return None
    wide = want.dtype in NOT_NUMPYS.values()
    a = (got.float() if wide else got).numpy()
    b = tensor_of(want).float().numpy() if wide else want.array
    close = np.isclose(a.astype(np.float64), b.astype(np.float64), RELATIVE, ABSOLUTE, equal_nan=True)
    if close.all():
        return None
    place = np.unravel_index(np.argmin(close), close.shape)
    return f"{(~close).sum()} of {close.size} differ, first at {tuple(map(int, place))}: {a[place]} for {b[place]}"


def outcomes(folders: Iterable[pathlib.Path], batch: int = 32) -> Iterator[tuple[str, str | None]]:
    """Of each test its name, and why it fails. The values of `batch` tests are asked for at once, as one run."""
    cases: list[Case] = []
    for folder in folders:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                cases += record(folder)
        except Exception as error:  # noqa: BLE001: whatever it is, it is the reason
            yield folder.name, reason(error)
        if len(cases) >= batch:
            yield from _checked(cases)
            cases = []
    yield from _checked(cases)


def _checked(cases: list[Case]) -> Iterator[tuple[str, str | None]]:
    try:
        pending = [value for case in cases for value in tensors(case.results)]
        if pending:
            Tensor.realize(*pending)
            for value in pending:
                value.numpy()
    except Exception as error:
        if len(cases) == 1:
            yield cases[0].name, reason(error)
            return
        for case in cases:  # one of them is to blame
            yield from _checked([case])
        return
    for case in cases:
        wrong = [difference(*pair) for pair in zip(case.results, case.expected, strict=True)]
        yield case.name, next((what for what in wrong if what), None)


def reason(error: Exception) -> str:
    """In a line, without the place in our code."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    text = re.sub(r"^.*?the model needs what is not there: ", "", text)
    return text if isinstance(error, (NotImplementedError, UnsupportedType)) else f"{type(error).__name__}: {text}"
