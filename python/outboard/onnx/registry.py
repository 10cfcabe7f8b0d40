"""Which function computes which operator of ONNX, from which version of its operator set on.

An operator is a function of its inputs, in order, and of its attributes, by their names in ONNX. It gets Tensors; None
stands for an input that was left out. Inputs whose places are named by `host` come as NumPy arrays, since shapes depend
on them. A function may ask for what no attribute says by the names in INJECTED.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

# outputs: how many outputs the node has. opset: the version of the operator set that the model was written for.
# scope: the values that are visible where the node stands, for operators with a body.
INJECTED = ("outputs", "opset", "scope")
ALIASES = {"ai.onnx": ""}


class Operator(NamedTuple):
    """A function and what it needs to be called."""

    name: str
    since: int
    function: Callable[..., Any]
    host: frozenset[int]
    attributes: frozenset[str]  # that it understands; empty with `any_attribute`
    any_attribute: bool
    injected: tuple[str, ...]
    constants: bool  # whether Constants reach it as they are


_operators: dict[tuple[str, str], list[Operator]] = {}
_folds: dict[str, Callable[..., Any]] = {}


def op(
    *names: str, since: int = 1, domain: str = "", host: tuple[int, ...] = (), constants: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares that a function computes the operators `names`."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        # Methods of Tensor, which are not ours to inspect, take inputs alone.
        code = function if inspect.isfunction(function) else None
        parameters = inspect.signature(code).parameters if code else {}
        keywords = frozenset(n for n, p in parameters.items() if p.kind is not p.VAR_POSITIONAL)
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        injected = tuple(name for name in INJECTED if name in keywords)
        for name in names:
            versions = _operators.setdefault((domain, name), [])
            versions.append(
                Operator(name, since, function, frozenset(host), keywords, open_ended, injected, constants)
            )
            versions.sort(key=lambda operator: -operator.since)
        return function

    return declare


def fold(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares a function of arrays that computes the operators `names` of small constants on this machine."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _folds[name] = function
        return function

    return declare


def find(domain: str, name: str, version: int) -> Operator | None:
    """The operator as `version` of the operator set `domain` has it."""
    for operator in _operators.get((ALIASES.get(domain, domain), name), ()):
        if operator.since <= version:
            return operator
    return None


def fold_of(domain: str, name: str) -> Callable[..., Any] | None:
    """How to compute the operator on this machine, if we know."""
    return _folds.get(name) if ALIASES.get(domain, domain) == "" else None


def names() -> dict[str, dict[str, list[int]]]:
    """Of each domain the operators, and the versions from which on each of our functions computes them."""
    table: dict[str, dict[str, list[int]]] = {}
    for (domain, name), versions in sorted(_operators.items()):
        table.setdefault(domain, {})[name] = sorted(operator.since for operator in versions)
    return table
