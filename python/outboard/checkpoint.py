"""Checkpoints in the cloud: tensors under a name, written and read there. No bytes of them pass through the program.

    outboard.save("mnist/best", model)
    ...                                           # another day, another session
    nn.state.load_state_dict(model, outboard.load("mnist/best"))

`outboard store ls` lists the names, `outboard pull NAME` brings one as a safetensors file.
"""
from typing import Any, NamedTuple

from outboard import _core
from outboard._core import Tensor


class Saved(NamedTuple):
    """What a save came to, in bytes."""

    total: int
    sent: int
    """From worker to gateway: the rest was stored already."""


def save(name: str, obj: Any) -> Saved:
    """Saves the tensors that `obj` consists of (a model, an optimiser, a state dict); waits until they are on disk.

    An existing name is replaced at once, when all of the new one is there.
    """
    from outboard.nn.state import get_state_dict  # here: who saves nothing does not wait for it at import

    return Saved(*_core.checkpoint_save(name, list(get_state_dict(obj).items())))


def load(name: str) -> dict[str, Tensor]:
    """The tensors by name, where the session computes."""
    return _core.checkpoint_load(name)
