"""Operators with a body. What decides is fetched where it is not known here: the graph that is recorded depends on it.

A body sees the values around it by their names (Scope), and gives names to its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from outboard import Tensor
from outboard.onnx.graph import Graph, Scope
from outboard.onnx.registry import op
from outboard.onnx.values import Constant, tensor_of, value_of


def _outputs(values: list[Any]) -> tuple[Any, ...]:
    return tuple(values)


@op("If", host=(0,), constants=True)
def if_(condition: np.ndarray, then_branch: Graph, else_branch: Graph, scope: Scope):
    return _outputs((then_branch if condition.item() else else_branch).run({}, scope))


@op("Loop", host=(0, 1), constants=True)
def loop(trips: np.ndarray | None, condition: np.ndarray | None, *carried: Any, body: Graph, scope: Scope):
    """Each trip takes its number, the condition and what is carried, and gives the latter two and what is gathered."""
    go_on = True if condition is None else bool(condition.item())
    trips_max = sys.maxsize if trips is None else int(trips.item())
    carried, names, trip = list(carried), body.input_names, 0
    gathered: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    while go_on and trip < trips_max:
        inputs = [Constant(np.array(trip, np.int64)), Constant(np.array(True)), *carried]
        going_on, *results = body.run(dict(zip(names, inputs, strict=True)), scope)
        carried = results[: len(carried)]
        for values, value in zip(gathered, results[len(carried) :], strict=True):
            values.append(tensor_of(value))
        go_on = bool(value_of(going_on).item())
        trip += 1
    return _outputs([*carried, *(_stack(values, 0) for values in gathered)])


def _stack(values: list[Tensor], axis: int) -> Tensor:
    if not values:
        raise NotImplementedError("a Loop without a trip whose values are gathered: their shape is not known")
    return Tensor.stack(*values, dim=axis)


@op("Scan")
def scan_8(lengths: Tensor | None, *inputs: Tensor, body: Graph, num_scan_inputs: int, scope: Scope, directions=None):
    """Version 8: all have a batch axis in front, and each element of the batch is a scan."""
    if lengths is not None:
        raise NotImplementedError("Scan of version 8 with sequence lengths")
    carried = len(inputs) - num_scan_inputs
    results = [
        scan(
            *(value[element] for value in inputs),
            body=body, num_scan_inputs=num_scan_inputs, scope=scope, scan_input_directions=directions,
        )
        for element in range(inputs[carried].shape[0])
    ]  # fmt: skip
    return tuple(Tensor.stack(*values) for values in zip(*results, strict=True))


@op("Scan", since=9)
def scan(
    *inputs: Tensor,
    body: Graph,
    num_scan_inputs: int,
    scope: Scope,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
):
    """Each step takes what is carried and a slice of each scanned input, and gives the former and what is gathered."""
    first = len(inputs) - num_scan_inputs
    carried, scanned = list(inputs[:first]), inputs[first:]
    axes = scan_input_axes or [0] * len(scanned)
    backwards = scan_input_directions or [0] * len(scanned)
    parts = []
    for value, axis, back in zip(scanned, axes, backwards, strict=True):
        slices = [part.squeeze(axis) for part in value.split(1, axis)]
        parts.append(slices[::-1] if back else slices)
    gathered: list[list[Tensor]] = [[] for _ in body.outputs[first:]]
    for step in zip(*parts, strict=True):
        results = body.run(dict(zip(body.input_names, [*carried, *step], strict=True)), scope)
        carried = results[:first]
        for values, value in zip(gathered, results[first:], strict=True):
            values.append(tensor_of(value))
    axes = scan_output_axes or [0] * len(gathered)
    backwards = scan_output_directions or [0] * len(gathered)
    joined = [
        _stack(values[::-1] if back else values, axis)
        for values, axis, back in zip(gathered, axes, backwards, strict=True)
    ]
    return _outputs([*carried, *joined])


@op("SequenceMap")
def sequence_map(first: list[Tensor], *others: Any, body: Graph, scope: Scope):
    """For each element of the first sequence; of other sequences the element at its place, tensors as they are."""
    results = []
    for i, part in enumerate(first):
        inputs = [part, *(other[i] if isinstance(other, list) else other for other in others)]
        results.append(body.run(dict(zip(body.input_names, inputs, strict=True)), scope))
    return tuple([tensor_of(result[i]) for result in results] for i in range(len(body.outputs)))
