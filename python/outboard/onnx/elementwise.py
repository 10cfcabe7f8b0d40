"""Operators that compute each element from those at its place. Shapes broadcast as in NumPy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from outboard import Tensor, dtypes
from outboard.onnx.registry import op
from outboard.onnx.values import dtype_of

# Those that a method of Tensor computes as it is.
_METHODS = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseAnd": "bitwise_and", "BitwiseNot": "bitwise_not", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "HardSwish": "hardswish", "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    "Where": "where",
}  # fmt: skip
for _name, _method in _METHODS.items():
    op(_name)(getattr(Tensor, _method))


def _aligned(x: Tensor, y: Tensor, broadcast: int, axis: int | None) -> Tensor:
    """Before version 7 `axis` says where the axes of `y` stand in `x`; without it they are the last ones."""
    if not broadcast or axis is None:
        return y
    axis += x.ndim if axis < 0 else 0
    return y.reshape(*y.shape, *(1,) * (x.ndim - axis - y.ndim))


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def operator(x: Tensor, y: Tensor, broadcast: int = 0, axis: int | None = None) -> Tensor:
        return function(x, _aligned(x, y, broadcast, axis))

    return operator


for _name, _function in {
    "Add": Tensor.__add__, "And": Tensor.__and__, "Equal": Tensor.__eq__, "Greater": Tensor.__gt__,
    "GreaterOrEqual": Tensor.__ge__, "Less": Tensor.__lt__, "LessOrEqual": Tensor.__le__, "Mul": Tensor.__mul__,
    "Or": Tensor.__or__, "Sub": Tensor.__sub__, "Xor": Tensor.__xor__,
}.items():  # fmt: skip
    op(_name)(_binary(_function))


@op("Div")
def div(x: Tensor, y: Tensor, broadcast: int = 0, axis: int | None = None) -> Tensor:
    y = _aligned(x, y, broadcast, axis)
    return x.div(y, rounding_mode="trunc") if dtypes.is_int(x.dtype) else x / y


@op("Pow")
def pow_(x: Tensor, y: Tensor, broadcast: int = 0, axis: int | None = None) -> Tensor:
    y = _aligned(x, y, broadcast, axis)
    if not dtypes.is_int(x.dtype):
        return x.pow(y.cast(x.dtype))
    if dtypes.is_int(y.dtype):
        return _int_pow(x, y)
    return x.cast(dtypes.float64).pow(y.cast(dtypes.float64)).round().cast(x.dtype)


def _int_pow(x: Tensor, y: Tensor) -> Tensor:
    """Exactly, modulo the width of `x`: by squares of x. A negative exponent gives 0 but for 1 and -1."""
    power = (x * 0 + 1) + (y * 0).cast(x.dtype)
    square = x
    for bit in range(6):  # the 64th power of anything but -1, 0, 1 is out of range
        power = ((y >> bit) & 1 != 0).where(power * square, power)
        square = square * square
    if dtypes.is_unsigned(y.dtype):
        return power
    inverse = (x == 1).where(1, (x == -1).where(((y & 1) != 0).where(-1, 1), 0)).cast(x.dtype)
    return (y < 0).where(inverse, power)


@op("Mod")
def mod(x: Tensor, y: Tensor, fmod: int = 0) -> Tensor:
    return x.fmod(y) if fmod else x % y


@op("BitShift")
def bit_shift(x: Tensor, y: Tensor, direction: str) -> Tensor:
    return x.lshift(y) if direction == "LEFT" else x.rshift(y)


@op("Max")
def max_(*data: Tensor) -> Tensor:
    return functools.reduce(Tensor.maximum, data)


@op("Min")
def min_(*data: Tensor) -> Tensor:
    return functools.reduce(Tensor.minimum, data)


@op("Sum")
def sum_(*data: Tensor) -> Tensor:
    return functools.reduce(Tensor.add, data)


@op("Mean")
def mean(*data: Tensor) -> Tensor:
    return sum_(*data) / len(data)


@op("Identity")
def identity(x):
    return x


@op("Cast")
def cast(x: Tensor, to: int, saturate: int = 1) -> Tensor:
    return _cast(x, dtype_of(to), saturate)


@op("CastLike")
def cast_like(x: Tensor, target: Tensor, saturate: int = 1) -> Tensor:
    return _cast(x, target.dtype, saturate)


def _cast(x: Tensor, dtype: Any, saturate: int) -> Tensor:
    """Only 8-bit floats can be saturated. Of ours, e4m3 always is and e5m2, which has an infinity, never."""
    if dtype == dtypes.fp8e5m2 and saturate:
        return x.isnan().where(x, x.clip(-57344, 57344)).cast(dtype)
    if dtype == dtypes.fp8e4m3 and not saturate:  # 464 is the last that would be rounded to 448, the largest
        return (x.abs() <= 464).where(x, float("nan")).cast(dtype)
    return x.cast(dtype)


@op("IsInf")
def is_inf(x: Tensor, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    return x.isinf(detect_positive=bool(detect_positive), detect_negative=bool(detect_negative))


@op("Clip")
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None, min=None, max=None) -> Tensor:  # noqa: A002
    """The limits are attributes before version 11, inputs since."""
    low, high = (min if low is None else low), (max if high is None else high)
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


@op("LeakyRelu")
def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    return x.leaky_relu(alpha)


@op("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    # Before version 7 a slope of one axis belongs to the channels.
    if slope.ndim == 1 and x.ndim > 2 and slope.shape[0] == x.shape[1] != x.shape[-1]:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return (x < 0).where(x * slope, x)


@op("ThresholdedRelu")
def thresholded_relu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return (x > alpha).where(x, 0)


@op("Elu")
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x.elu(alpha)


@op("Celu")
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x.celu(alpha)


@op("Selu")
def selu(x: Tensor, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor:
    return x.selu(alpha, gamma)


@op("HardSigmoid")
def hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return x.hardsigmoid(alpha, beta)


@op("Gelu")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return x.gelu()
    return 0.5 * x * (1 + (x * (1 / math.sqrt(2))).erf())


@op("Swish")
def swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x * (x * alpha).sigmoid()


@op("Shrink")
def shrink(x: Tensor, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    return (x < -lambd).where(x + bias, (x > lambd).where(x - bias, 0)).cast(x.dtype)


@op("Binarizer", domain="ai.onnx.ml")
def binarizer(x: Tensor, threshold: float = 0.0) -> Tensor:
    return (x > threshold).cast(x.dtype)
