"""Operators on integers that stand for floats: value = (integer - zero point) * scale."""

from __future__ import annotations

from outboard import Tensor, dtypes
from outboard.onnx.registry import op
from outboard.onnx.values import dtype_of
from outboard.onnx.windows import conv


def _along(value: Tensor | None, x: Tensor, axis: int, block_size: int = 0) -> Tensor | None:
    """A scale or zero point for all of `x`, for each place of an axis, or for each block of one."""
    if value is None or value.ndim == 0 or value.numel() == 1:
        return value if value is None else value.reshape(())
    if block_size:
        return value.repeat_interleave(block_size, axis)
    return value.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def _saturated(x: Tensor, dtype) -> Tensor:
    if dtypes.is_float(dtype):
        return x.cast(dtype)
    return x.clip(dtype.min, dtype.max).cast(dtype)


def _dequantised(x: Tensor, zero_point: Tensor | None) -> Tensor:
    """Of i32, in which products of 8-bit numbers are exact."""
    if dtypes.is_float(x.dtype):
        return x.cast(dtypes.float32)
    x = x.cast(dtypes.int32)
    return x if zero_point is None else x - zero_point.cast(dtypes.int32)


@op("QuantizeLinear")
def quantize_linear(
    x: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    dtype = dtypes.uint8 if not output_dtype else dtype_of(output_dtype)
    dtype = dtype if y_zero_point is None else y_zero_point.dtype
    scale, zero_point = (_along(value, x, axis, block_size) for value in (y_scale, y_zero_point))
    scaled = x / scale
    if dtypes.is_float(dtype):
        return scaled.cast(dtype)
    rounded = scaled.cast(dtypes.float32).round()
    return _saturated(rounded if zero_point is None else rounded + zero_point.cast(rounded.dtype), dtype)


@op("DequantizeLinear")
def dequantize_linear(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    scale, zero_point = (_along(value, x, axis, block_size) for value in (x_scale, x_zero_point))
    return (_dequantised(x, zero_point) * scale).cast(dtype_of(output_dtype) if output_dtype else x_scale.dtype)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor):
    """Of u8, with the scale that the values ask for; 0 is always a value."""
    low, high = x.min().minimum(0), x.max().maximum(0)
    scale = (high - low) / 255
    zero_point = _saturated((0 - low / scale).round(), dtypes.uint8)
    y = _saturated((x / scale).round() + zero_point.cast(dtypes.float32), dtypes.uint8)
    return y, scale, zero_point


@op("MatMulInteger")
def mat_mul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    if a_zero_point is not None and a_zero_point.ndim == 1 and a_zero_point.shape[0] > 1:
        a_zero_point = a_zero_point.reshape(-1, 1)  # one for each row
    return _dequantised(a, a_zero_point).matmul(_dequantised(b, b_zero_point))


@op("ConvInteger")
def conv_integer(
    x: Tensor, w: Tensor, x_zero_point: Tensor | None = None, w_zero_point: Tensor | None = None, **options
) -> Tensor:
    return conv(_dequantised(x, x_zero_point), _dequantised(w, _along(w_zero_point, w, 0)), **options)


@op("QLinearMatMul")
def q_linear_mat_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    """A list of scales for `a` has one for each row; for `b` and `y`, one for each column."""
    a_scale, a_zero_point = (_along(value, a, -2) for value in (a_scale, a_zero_point))
    b_scale, b_zero_point = (_along(value, b, -1) for value in (b_scale, b_zero_point))
    product = _dequantised(a, a_zero_point).matmul(_dequantised(b, b_zero_point))
    return _requantised(product, a_scale * b_scale / y_scale, y_zero_point)


@op("QLinearConv")
def q_linear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    b: Tensor | None = None,
    **options,
) -> Tensor:
    """A list of scales for `w` has one for each output channel, which is an axis of the result."""
    y = conv(_dequantised(x, x_zero_point.reshape(())), _dequantised(w, _along(w_zero_point, w, 0)), b, **options)
    scale = x_scale.reshape(()) * _along(w_scale, y, 1) / y_scale.reshape(())
    return _requantised(y, scale, y_zero_point.reshape(()))


def _requantised(product: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    rounded = (product.cast(dtypes.float32) * scale).round()
    return _saturated(rounded + zero_point.cast(dtypes.float32), zero_point.dtype)
