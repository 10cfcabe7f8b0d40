"""Outboard: tensors whose values live in the cloud, with the names of tinygrad.

    from outboard import Tensor
    x = Tensor.rand(1024, 1024)
    print((x @ x).relu().sum().item())     # the only line that waits

A program without CLOUD=1 starts a private worker on this machine; with CLOUD=1, CLOUD_HOST and CLOUD_KEY the same program
runs there.
"""
import atexit as _atexit
import os as _os

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
from outboard.checkpoint import load, save
from outboard.device import Device
from outboard.dtypes import dtypes
from outboard.errors import (
    BY_CODE as _BY_CODE,
    DeadlineExceeded,
    Error,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from outboard.helpers import Context, GlobalCounters
from outboard.jit import TinyJit
from outboard.progress_bars import progress, tqdm, trange
from outboard.session import Session

_core.set_error_classes(_BY_CODE, Error)
_core.set_package_folder(_os.path.dirname(_os.path.abspath(__file__)) + _os.sep)
# While there is an interpreter: the devices are free and the bills stand before anything else is taken apart, and no thread
# wakes in what is left of it.
_atexit.register(_core.end_waits)
_atexit.register(_core.close_all)

__all__ = [
    "Context",
    "DType",
    "DeadlineExceeded",
    "Device",
    "Error",
    "GlobalCounters",
    "InvalidArgument",
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
    "load",
    "progress",
    "repeat",
    "save",
    "tqdm",
    "trange",
]
