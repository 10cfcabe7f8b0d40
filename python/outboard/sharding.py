"""Hints for a whole model: how its weights lie on the devices of a session."""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from outboard._core import Tensor

Model = TypeVar("Model")

HOWS = ("data", "fsdp")


def shard_model(model: Model, how: str | Callable[[str, Tensor], int | None] = "fsdp") -> Model:
    """Hints how each tensor of a model lies on the devices of the session (Tensor.shard_), and returns the model.

    how: "fsdp" cuts each along its longest dimension, the first of equal ones; "data" keeps each whole on every device; or a
    function of name and tensor that returns the dimension to cut, or None for whole. Values and gradients are unchanged,
    and one device ignores it. ValueError for another `how`; InvalidIndex for a dimension that a tensor has not.
    """
    if isinstance(how, str) and how not in HOWS:
        raise ValueError(f"shard_model: how is {how!r}, not one of {', '.join(HOWS)} or a function")
    from outboard.nn.state import get_state_dict  # which imports this package
    for name, tensor in get_state_dict(model).items():
        if callable(how):
            axis = how(name, tensor)
        elif how == "data" or tensor.ndim == 0:
            axis = None
        else:
            axis = max(range(tensor.ndim), key=lambda dim: (tensor.shape[dim], -dim))
        tensor.shard_(axis=axis)
    return model
