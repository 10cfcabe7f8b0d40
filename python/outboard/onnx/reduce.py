"""Operators that join the elements along axes: sums, extremes, running sums, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

from outboard import Tensor, dtypes
from outboard.onnx.registry import op

# In 16 bits a sum of squares is soon out of range.
_NARROW = (dtypes.float16, dtypes.bfloat16)


def _wide(x: Tensor) -> Tensor:
    return x.cast(dtypes.float32) if x.dtype in _NARROW else x


def _log_sum_exp(x: Tensor, axis: tuple[int, ...], keepdim: bool) -> Tensor:
    x = x if dtypes.is_float(x.dtype) else x.cast(dtypes.float32)
    return x.logsumexp(axis, keepdim)


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceSum": lambda x, axis, keepdim: x.sum(axis, keepdim),
    "ReduceMean": lambda x, axis, keepdim: x.mean(axis, keepdim),
    "ReduceMax": lambda x, axis, keepdim: x.max(axis, keepdim),
    "ReduceMin": lambda x, axis, keepdim: x.min(axis, keepdim),
    "ReduceProd": lambda x, axis, keepdim: x.prod(axis, keepdim),
    "ReduceL1": lambda x, axis, keepdim: x.abs().sum(axis, keepdim),
    "ReduceL2": lambda x, axis, keepdim: _wide(x).square().sum(axis, keepdim).sqrt(),
    "ReduceSumSquare": lambda x, axis, keepdim: x.square().sum(axis, keepdim),
    "ReduceLogSum": lambda x, axis, keepdim: x.sum(axis, keepdim).log(),
    "ReduceLogSumExp": _log_sum_exp,
}


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The axes are an attribute in old versions, an input in new ones."""

    def reduction(x, axes=None, keepdims=1, noop_with_empty_axes=0):
        axes = () if axes is None else tuple(int(axis) for axis in axes)
        if not axes and noop_with_empty_axes:
            return x
        return function(x, axes or tuple(range(x.ndim)), bool(keepdims)).cast(x.dtype)

    return reduction


for _name, _function in _REDUCTIONS.items():
    op(_name, host=(1,))(_reduction(_function))


@op("ArgMax")
def arg_max(x: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _arg(Tensor.argmax, x, axis, keepdims, select_last_index)


@op("ArgMin")
def arg_min(x: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _arg(Tensor.argmin, x, axis, keepdims, select_last_index)


def _arg(find: Callable[..., Tensor], x: Tensor, axis: int, keepdims: int, last: int) -> Tensor:
    if not last:
        return find(x, axis, bool(keepdims)).cast(dtypes.int64)
    return (x.shape[axis] - 1 - find(x.flip(axis), axis, bool(keepdims))).cast(dtypes.int64)


@op("CumSum", host=(1,))
def cum_sum(x: Tensor, axis, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(Tensor.cumsum, x, int(axis), exclusive, reverse, 0)


@op("CumProd", host=(1,))
def cum_prod(x: Tensor, axis, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(Tensor.cumprod, x, int(axis), exclusive, reverse, 1)


def _running(scan: Callable[..., Tensor], x: Tensor, axis: int, exclusive: int, reverse: int, start: int) -> Tensor:
    axis, dtype = axis % x.ndim, x.dtype
    x = x.flip(axis) if reverse else x
    if exclusive:  # all are one place further, behind the neutral element
        x = x.pad(tuple((1, 0) if i == axis else (0, 0) for i in range(x.ndim)), value=start)
        x = x.shrink(tuple((0, x.shape[axis] - 1) if i == axis else (0, x.shape[i]) for i in range(x.ndim)))
    x = scan(x, axis).cast(dtype)
    return x.flip(axis) if reverse else x


def _flattened(function: Callable[[Tensor, int], Tensor], x: Tensor, axis: int) -> Tensor:
    """Before version 13 the axes from `axis` on count as one."""
    axis += x.ndim if axis < 0 else 0
    return function(x.reshape(math.prod(x.shape[:axis]), -1), 1).reshape(x.shape)


@op("Softmax")
def softmax_1(x: Tensor, axis: int = 1) -> Tensor:
    return _flattened(Tensor.softmax, x, axis)


@op("Softmax", since=13)
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return x.softmax(axis)


@op("LogSoftmax")
def log_softmax_1(x: Tensor, axis: int = 1) -> Tensor:
    return _flattened(Tensor.log_softmax, x, axis)


@op("LogSoftmax", since=13)
def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return x.log_softmax(axis)


@op("Hardmax")
def hardmax_1(x: Tensor, axis: int = 1) -> Tensor:
    return _flattened(hardmax, x, axis)


@op("Hardmax", since=13)
def hardmax(x: Tensor, axis: int = -1) -> Tensor:
    places = Tensor.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis % x.ndim))
    return (places == x.argmax(axis, keepdim=True)).cast(x.dtype)
