"""What a trial of `outboard sweep` says of itself (docs/sweeps.md)."""
from __future__ import annotations

from typing import Any

from outboard import _core


def report(step: int, **values: Any) -> None:
    """Tells the sweep that this program is a trial of what it has come to at `step`, which counts from 0.

    A value is a number, or a tensor of one element, which is computed if there is a sweep. Without a sweep nothing is done.
    In a sweep's warm-up (`--warm-up K`) it ends the program at step K.

    Raises ValueError (outboard.InvalidArgument) for a step below 0.
    """
    numbers = {}
    if _core.is_trial():
        numbers = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
    _core.report(step, numbers)
    if _core.warm_up_ends_at(step):
        raise SystemExit(0)
