"""Outboard: tensors whose values live in the cloud, with the names of tinygrad.

    from outboard import Tensor
    x = Tensor.rand(1024, 1024)
    print((x @ x).relu().sum().item())     # waits for the result; the first line has opened the session

A program without CLOUD=1 starts a private worker on this machine; with CLOUD=1, CLOUD_HOST, CLOUD_KEY and, for another
machine, CLOUD_FINGERPRINT the same program computes there.
"""
import atexit as _atexit
import os as _os
import typing as _typing

try:
    from outboard import _core
except ImportError as _error:
    from outboard._wrong_python import explained as _explained
    raise _explained(_error) from None
from outboard._core import (
    DType,
    Tensor,
    TensorFuture,
    Variable,
    repeat,
)
from outboard.checkpoint import keep, kept, load, save
from outboard.device import Device
from outboard.dtypes import dtypes
from outboard.errors import (
    BY_CODE as _BY_CODE,
    AlreadyExists,
    CheckFailed,
    DeadlineExceeded,
    Error,
    InvalidArgument,
    InvalidIndex,
    IsADirectory,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from outboard.hashing import hash_of as _hash_of, keccak as _keccak
from outboard.helpers import Context, GlobalCounters
from outboard.jit import TinyJit
from outboard.progress_bars import progress, tqdm, trange
from outboard.reports import report
from outboard.session import Session
from outboard.sharding import shard_model
from outboard.sources import from_blob as _from_blob, from_url as _from_url

_core.set_error_classes(_BY_CODE, Error, InvalidIndex, CheckFailed)
_core.set_package_folder(_os.path.dirname(_os.path.abspath(__file__)) + _os.sep)
# The methods that are written in Python. They say that they are of the class's module, so that its stub has them.
for _name, _function in {"from_blob": _from_blob, "from_url": _from_url, "hash": _hash_of, "keccak": _keccak}.items():
    _function.__module__, _function.__name__, _function.__qualname__ = _core.__name__, _name, f"Tensor.{_name}"
    setattr(Tensor, _name, staticmethod(_function) if _name.startswith("from_") else _function)
# While there is an interpreter: the devices are free and the bills stand before anything else is taken apart, and no thread
# wakes in what is left of it.
_atexit.register(_core.end_waits)
_atexit.register(_core.close_all)

if _typing.TYPE_CHECKING:
    from outboard import sweep as sweep


def __getattr__(name: str) -> _typing.Any:
    """`outboard.sweep` is imported when it is first asked for: `python -m outboard.sweep` runs it as a program, and
    Python warns about one that the package has imported already."""
    if name == "sweep":
        import importlib
        return importlib.import_module("outboard.sweep")
    raise AttributeError(f"module 'outboard' has no attribute {name!r}")


__all__ = [
    "AlreadyExists",
    "CheckFailed",
    "Context",
    "DType",
    "DeadlineExceeded",
    "Device",
    "Error",
    "GlobalCounters",
    "InvalidArgument",
    "InvalidIndex",
    "IsADirectory",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "ResourceExhausted",
    "Session",
    "Tensor",
    "TensorFuture",
    "TinyJit",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Variable",
    "dtypes",
    "keep",
    "kept",
    "load",
    "progress",
    "repeat",
    "report",
    "save",
    "tqdm",
    "trange",
]
