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


def keep(obj: Any) -> None:
    """Keeps the tensors that `obj` consists of in this thread's session, under their names: whoever enters the session
    later (Session.attach, Session.fork) finds them by `kept`. What was kept before is not any more.

    A name follows its tensor: after an optimiser's step or another assign it is the new value that is found. Nothing is
    copied, and nothing waits.
    """
    from outboard.nn.state import get_state_dict  # here, as above

    _core.keep(list(get_state_dict(obj).items()))


def kept() -> dict[str, Tensor]:
    """The tensors by name that were kept when this thread's session was entered; none in a new one."""
    return _core.kept()


def load(name: str) -> dict[str, Tensor]:
    """The tensors by name, where the session computes."""
    return _core.checkpoint_load(name)
