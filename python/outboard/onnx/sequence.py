"""Sequences, which are lists of tensors, and optional values, which are None where there is nothing."""

from __future__ import annotations

import numpy as np

from outboard import Tensor
from outboard.onnx.registry import op
from outboard.onnx.values import Constant


@op("SequenceConstruct")
def sequence_construct(*parts: Tensor) -> list[Tensor]:
    return list(parts)


@op("SequenceEmpty")
def sequence_empty(dtype: int = 1) -> list[Tensor]:
    return []


@op("SequenceLength")
def sequence_length(parts: list[Tensor]) -> Constant:
    return Constant(np.array(len(parts), np.int64))


@op("SequenceAt", host=(1,))
def sequence_at(parts: list[Tensor], position: np.ndarray) -> Tensor:
    return parts[int(position)]


@op("SequenceInsert", host=(2,))
def sequence_insert(parts: list[Tensor], part: Tensor, position: np.ndarray | None = None) -> list[Tensor]:
    place = len(parts) if position is None else _place(parts, position, len(parts) + 1)
    return [*parts[:place], part, *parts[place:]]


@op("SequenceErase", host=(1,))
def sequence_erase(parts: list[Tensor], position: np.ndarray | None = None) -> list[Tensor]:
    place = _place(parts, np.array(-1) if position is None else position, len(parts))
    return [*parts[:place], *parts[place + 1 :]]


def _place(parts: list[Tensor], position: np.ndarray, places: int) -> int:
    place = int(position) + (len(parts) if position < 0 else 0)
    if not 0 <= place < places:
        raise IndexError(f"place {int(position)} of a sequence of {len(parts)}")
    return place


@op("ConcatFromSequence")
def concat_from_sequence(parts: list[Tensor], axis: int, new_axis: int = 0) -> Tensor:
    return Tensor.stack(*parts, dim=axis) if new_axis else parts[0].cat(*parts[1:], dim=axis)


@op("SplitToSequence", host=(1,))
def split_to_sequence(x: Tensor, split: np.ndarray | None = None, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    if split is None:
        parts = x.split(1, axis)
        return list(parts) if keepdims else [part.squeeze(axis) for part in parts]
    return list(x.split(int(split) if split.ndim == 0 else split.tolist(), axis))


@op("Optional")
def optional(value=None, type=None):  # noqa: A002: ONNX's name
    return value


@op("OptionalHasElement")
def optional_has_element(value=None) -> Constant:
    return Constant(np.array(value is not None))


@op("OptionalGetElement")
def optional_get_element(value=None):
    if value is None:
        raise ValueError("OptionalGetElement of an optional value that is not there")
    return value
