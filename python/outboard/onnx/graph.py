"""A graph of ONNX, ready to run: its operators are found, its constants read, its bodies and functions made graphs.

    read(proto) -> Graph -> Graph.run(values) -> values of its outputs

What follows from small constants alone is computed on this machine (fold.py), so that shapes need no round trip.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from outboard.onnx import registry
from outboard.onnx.values import Constant, UnsupportedType, constant_of, sparse_constant_of, tensor_of, value_of

FOLDED_ELEMENTS_MAX = 1024  # shapes and what is computed from them; weights are none of these
CALL_DEPTH_MAX = 64  # functions that call functions; more is a circle


class UnsupportedModel(NotImplementedError):
    """A model with operators, attributes or types that are not there; the message has them all."""


@dataclasses.dataclass
class Node:
    """One application of an operator."""

    operator: registry.Operator | None  # None: a function of the model, whose body is `attributes["body"]`
    domain: str
    name: str  # of the operator
    opset: int
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"


class Scope(Mapping[str, Any]):
    """The values that are visible in a graph: its own, and those of the graphs around it."""

    def __init__(self, values: dict[str, Any], around: Scope | None = None) -> None:
        self.values_here = values
        self.around = around

    def __getitem__(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values_here:
                return scope.values_here[name]
            scope = scope.around
        raise KeyError(f"no value has the name {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_here)

    def __len__(self) -> int:
        return len(self.values_here)


@dataclasses.dataclass
class Graph:
    """Nodes in an order in which they can run. A name "" stands for a value that is left out."""

    name: str
    inputs: list[Any]  # of type ValueInfoProto, or names for a function
    outputs: list[str]
    constants: dict[str, Constant]
    nodes: list[Node]

    @property
    def input_names(self) -> list[str]:
        return [value if isinstance(value, str) else value.name for value in self.inputs]

    def run(self, values: dict[str, Any], around: Scope | None = None) -> list[Any]:
        """The values of the outputs: Tensors, Constants, lists of them, or None."""
        scope = Scope({"": None, **self.constants, **values}, around)
        for node in self.nodes:
            try:
                results = _run_node(node, [scope[name] for name in node.inputs], scope)
            except Exception as error:
                if hasattr(error, "add_note"):  # since Python 3.11
                    error.add_note(f"in the node {node}")
                raise
            scope.values_here.update(zip(node.outputs, results))
            scope.values_here[""] = None
        return [scope[name] for name in self.outputs]


def _run_node(node: Node, inputs: list[Any], scope: Scope) -> tuple[Any, ...]:
    while inputs and inputs[-1] is None:  # left out at the end: as if not mentioned
        inputs.pop()
    operator = node.operator
    if operator is None:
        body: Graph = node.attributes["body"]
        names = body.input_names
        return tuple(body.run(dict(zip(names, inputs + [None] * (len(names) - len(inputs))))))
    folded = _fold(node, inputs)
    if folded is not None:
        return folded
    injected = {"outputs": len(node.outputs), "opset": node.opset, "scope": scope}
    arguments = [
        value if value is None or (operator.constants and place not in operator.host)
        else value_of(value) if place in operator.host
        else tensor_of(value)
        for place, value in enumerate(inputs)
    ]  # fmt: skip
    attributes = node.attributes
    if not operator.constants:
        attributes = {name: tensor_of(value) for name, value in attributes.items()}
    result = operator.function(*arguments, **attributes, **{name: injected[name] for name in operator.injected})
    return result if isinstance(result, tuple) else (result,)


def _fold(node: Node, inputs: list[Any]) -> tuple[Any, ...] | None:
    """The result on this machine, where all inputs are small constants and we know how."""
    function = registry.fold_of(node.domain, node.name)
    if function is None or not inputs:
        return None
    for value in inputs:
        if not isinstance(value, Constant) or not value.foldable or value.array.size > FOLDED_ELEMENTS_MAX:
            return None
    result = function(*(value.array for value in inputs), **node.attributes)
    return None if result is None or result.size > FOLDED_ELEMENTS_MAX else (Constant(np.asarray(result)),)


class Reader:
    """Makes Graphs of GraphProtos, and gathers all that is missing instead of stopping at the first."""

    def __init__(self, model: Any, folder: pathlib.Path | None) -> None:
        self.folder = folder
        self.opsets = {registry.ALIASES.get(domain, domain): v for domain, v in model.opset_import.items()}
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.missing: dict[str, int] = {}  # what, and how many nodes need it
        self.depth = 0

    def graph(self, proto: Any, given: dict[str, Any] | None = None) -> Graph:
        """`given`: the attributes of the call, in the body of a function."""
        constants = {}
        for initializer in proto.initializer:
            self._constant(constants, initializer.name, lambda: constant_of(initializer, self.folder))
        for sparse in proto.sparse_initializer:
            self._constant(constants, sparse.values.name, lambda: sparse_constant_of(sparse, self.folder))
        nodes = [self._node(node, self.opsets, given) for node in proto.node]
        return Graph(proto.name, proto.input, [value.name for value in proto.output], constants, nodes)

    def raise_if_missing(self) -> None:
        if self.missing:
            what = ", ".join(f"{name} ({count}x)" for name, count in sorted(self.missing.items()))
            raise UnsupportedModel(f"the model needs what is not there: {what}")

    def _constant(self, constants: dict[str, Constant], name: str, read: Any) -> None:
        try:
            constants[name] = read()
        except UnsupportedType as error:
            self._miss(f"tensor {name!r}: {error}")

    def _miss(self, what: str) -> None:
        self.missing[what] = self.missing.get(what, 0) + 1

    def _node(self, proto: Any, opsets: dict[str, int], given: dict[str, Any] | None) -> Node:
        domain = registry.ALIASES.get(proto.domain, proto.domain)
        opset = opsets.get(domain, 1)
        full_name = f"{domain}.{proto.op_type}" if domain else proto.op_type
        operator = registry.find(domain, proto.op_type, opset)
        attributes = self._attributes(proto, given)
        function = self.functions.get((proto.domain, proto.op_type))
        if operator is None and function is not None:
            attributes = {"body": self._function(function, attributes)}
        elif operator is None:
            self._miss(f"{full_name} of version {opset}")
        elif not operator.any_attribute:
            for name in attributes.keys() - operator.attributes:
                self._miss(f"{full_name} with the attribute {name}")
        return Node(operator, domain, proto.op_type, opset, proto.input, proto.output, attributes)

    def _attributes(self, proto: Any, given: dict[str, Any] | None) -> dict[str, Any]:
        attributes = {}
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                if given is not None and attribute.ref_attr_name in given:
                    attributes[attribute.name] = given[attribute.ref_attr_name]
                continue
            try:
                attributes[attribute.name] = self._attribute(attribute.value)
            except UnsupportedType as error:
                self._miss(f"{proto.op_type} with an attribute {attribute.name}: {error}")
        return attributes

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._attribute(part) for part in value]
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if hasattr(value, "node"):
            return self.graph(value)
        if hasattr(value, "raw_data"):
            return constant_of(value, self.folder)
        return value

    def _function(self, proto: Any, attributes: dict[str, Any]) -> Graph:
        if self.depth == CALL_DEPTH_MAX:
            raise ValueError(f"the function {proto.name} calls itself")
        self.depth += 1
        opsets = {registry.ALIASES.get(domain, domain): v for domain, v in proto.opset_import.items()}
        nodes = [self._node(node, opsets, attributes) for node in proto.node]
        self.depth -= 1
        return Graph(proto.name, proto.input, proto.output, {}, nodes)
