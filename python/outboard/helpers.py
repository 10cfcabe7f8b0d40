"""Settings of the process, counters of the session, and small functions that tinygrad programs take from its helpers.

A setting begins with the environment's value. DEBUG, BEAM and NOOPT are read by the program that runs the kernels, when
it begins: a private worker begins with the program's first value, the one of CLOUD=1 began on its owner's machine.
"""
from __future__ import annotations

import contextlib
import functools
import operator
import os
import sys
import time
from typing import Any, Iterable

from outboard import _core
from outboard.dtypes import dtypes
from outboard.progress_bars import tqdm, trange  # noqa: F401: tinygrad programs take them from here


@functools.cache
def getenv(key: str, default: Any = 0) -> Any:
    """The environment's `key`, as the type of `default`. ValueError where it is no such value."""
    text = os.getenv(key)
    if text is None:
        return default
    try:
        return type(default)(text)
    except ValueError:
        raise ValueError(f"{key} is {text!r}: write {'a whole number' if type(default) is int else 'a number'}, "
                         "or unset it") from None


class ContextVar:
    """A setting: compares as its value, and is `Context`'s to change for a while."""

    _cache: dict[str, ContextVar] = {}

    def __init__(self, key: str, default_value: Any):
        if key in ContextVar._cache:
            raise RuntimeError(f"attempt to recreate ContextVar {key}")
        ContextVar._cache[key] = self
        self.key = key
        self.value = getenv(key, default_value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other) -> bool:
        return self.value == other

    def __ge__(self, other) -> bool:
        return self.value >= other

    def __gt__(self, other) -> bool:
        return self.value > other

    def __le__(self, other) -> bool:
        return self.value <= other

    def __lt__(self, other) -> bool:
        return self.value < other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<ContextVar {self.key}={self.value}>"


class _Training(ContextVar):
    """Whether this thread trains, which the library itself asks."""

    @property
    def value(self) -> int:
        return int(_core.training())

    @value.setter
    def value(self, on) -> None:
        _core.set_training(bool(on))


class _AllowTf32(ContextVar):
    """Whether GPUs may round operands of this thread's products of float32 to TF32: a property of the program."""

    def __init__(self, key: str):
        super().__init__(key, int(_core.allow_tf32()))

    @property
    def value(self) -> int:
        return int(_core.allow_tf32())

    @value.setter
    def value(self, on) -> None:
        _core.set_allow_tf32(bool(on))


class _WorkerSetting(ContextVar):
    """What the program that runs the kernels reads when it begins, and never again.

    A private worker begins with the environment of this process, so setting one changes that, until it is set back.
    Where there is a worker already, or another machine has it, stderr gets a line, once for each setting.
    """

    def __init__(self, key: str, default_value: Any):
        self._told = False
        super().__init__(key, default_value)
        self._in_environment = os.environ.get(key)

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if not hasattr(self, "_value"):  # what the environment says
            self._value = self._first = value
            return
        text = str(int(value))
        changed, self._value = value != self._value, value
        if value == self._first and self._in_environment is None:
            os.environ.pop(self.key, None)
        else:
            os.environ[self.key] = text
        if changed and value != self._first:
            self._tell()

    def _tell(self) -> None:
        if self._told:
            return
        if _core.private_worker_runs():
            why = "the worker has started and keeps the settings that it began with"
            remedy = f"set {self.key} in the environment, or before the first value is asked for"
        elif os.environ.get("CLOUD", "0") not in ("", "0") or _core.Connection.current_if_any() is not None:
            why, remedy = "with CLOUD it is the worker's owner who sets it", "set it in the environment of the worker"
        else:
            return
        self._told = True
        print(f"outboard: {self.key}={self._value} does not change how kernels are made or run: {why}; {remedy}",
              file=sys.stderr)


class _DefaultDType(ContextVar):
    """dtypes.default_float or default_int, by name: `with Context(DEFAULT_FLOAT="half"):`."""

    def __init__(self, key: str):
        super().__init__(key, getattr(dtypes, key.lower()).name)

    @property
    def value(self) -> str:
        return getattr(dtypes, self.key.lower()).name

    @value.setter
    def value(self, dtype) -> None:
        setattr(dtypes, self.key.lower(), dtype)


class Context(contextlib.ContextDecorator):
    """`with Context(TRAINING=1):`, or `@Context(TRAINING=1)` before a function: these settings, then the old ones."""

    def __init__(self, **settings):
        self._settings = settings
        self._old: list[dict[str, Any]] = []

    def __enter__(self):
        self._old.append({key: ContextVar._cache[key].value for key in self._settings})
        for key, value in self._settings.items():
            ContextVar._cache[key].value = value

    def __exit__(self, *error):
        for key, value in self._old.pop().items():
            ContextVar._cache[key].value = value

    def __repr__(self) -> str:
        return f"Context({', '.join(f'{key}={value!r}' for key, value in self._settings.items())})"


DEBUG, BEAM, NOOPT = _WorkerSetting("DEBUG", 0), _WorkerSetting("BEAM", 0), _WorkerSetting("NOOPT", 0)
JIT = ContextVar("JIT", 1)
FUSE_OPTIM, WINO, NO_COLOR = ContextVar("FUSE_OPTIM", 0), ContextVar("WINO", 0), ContextVar("NO_COLOR", 0)
TRAINING = _Training("TRAINING", 0)
ALLOW_TF32 = _AllowTf32("ALLOW_TF32")
DEFAULT_FLOAT, DEFAULT_INT = _DefaultDType("DEFAULT_FLOAT"), _DefaultDType("DEFAULT_INT")


class _GlobalCounters:
    """What the session has done since the last reset(). The worker tells it with each answer that comes back, so what is
    under way is not in it yet: read a value first. Operations and bytes are estimated from the kernels, sizes of
    Variables by their largest; mem_used is 0."""

    mem_used = 0

    def __init__(self):
        self._start: dict[str, float] = {}

    def _since(self, name: str):
        now = _core.session_counters().get(name, 0)
        if now < self._start.get(name, 0):  # another session's, which counts from 0
            self._start[name] = 0
        return now - self._start.get(name, 0)

    @property
    def global_ops(self) -> int:
        """Arithmetic operations on floats."""
        return self._since("operations")

    @property
    def global_mem(self) -> int:
        """Bytes that the kernels read and wrote, each buffer of a kernel once."""
        return self._since("bytes_accessed")

    @property
    def kernel_count(self) -> int:
        """Kernels that the device ran."""
        return self._since("kernels")

    @property
    def time_sum_s(self) -> float:
        """Seconds that the device took for them."""
        return self._since("device_time_us") / 1e6

    def reset(self) -> None:
        """Counts from 0 again."""
        self._start = _core.session_counters()

    def __repr__(self) -> str:
        return (f"<GlobalCounters: {self.kernel_count} kernels, {self.global_ops} operations, {self.global_mem} bytes, "
                f"{self.time_sum_s:.6f} s>")


GlobalCounters = _GlobalCounters()


class Timing(contextlib.ContextDecorator):
    """Prints, after `prefix`, the milliseconds that its block took."""

    def __init__(self, prefix: str = "", on_exit=None, enabled: bool = True):
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled

    def __enter__(self):
        self.st = time.perf_counter_ns()
        return self

    def __exit__(self, *error):
        self.et = time.perf_counter_ns() - self.st
        if self.enabled:
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms" + (self.on_exit(self.et) if self.on_exit else ""))

    def __repr__(self) -> str:
        return f"Timing({self.prefix!r})"


def prod(values: Iterable) -> Any:
    """The product of the values; of none, 1."""
    return functools.reduce(operator.mul, values, 1)


def dedup(values: Iterable) -> list:
    """Each value once, in the order of its first place."""
    return list(dict.fromkeys(values))


def flatten(values: Iterable[Iterable]) -> list:
    """One list of the items of all; one level deep."""
    return [item for inner in values for item in inner]


def all_same(values) -> bool:
    """Whether all values of a sequence are equal; of none, True."""
    return all(item == values[0] for item in values)


def make_tuple(value, count: int) -> tuple:
    """A number `count` times, or a sequence as a tuple."""
    return (value,) * count if isinstance(value, int) else tuple(value)


def ceildiv(number, by):
    """number / by, rounded up."""
    return -(number // -by)


def round_up(number: int, to: int) -> int:
    """The least multiple of `to` that is not below `number`."""
    return ceildiv(number, to) * to


def colored(text, color: str | None, background: bool = False) -> str:
    """`text` with a terminal's codes: small letters are normal, capitals bright."""
    if color is None or NO_COLOR:
        return str(text)
    names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"]
    code = 10 * background + 60 * (color.upper() == color) + 30 + names.index(color.lower())
    return f"\u001b[{code}m{text}\u001b[0m"
