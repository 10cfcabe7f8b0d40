"""Operators that bring values to a common size: normalisation over a batch, a layer, a group, neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from outboard import Tensor, dtypes
from outboard.onnx.registry import op


def _of_channels(x: Tensor, rank: int) -> Tensor:
    return x.reshape(1, -1, *(1,) * (rank - 2))


def _variance(x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The mean, and what is left of `x` without it."""
    mean = x.mean(tuple(axes), keepdim=True)
    return mean, (x - mean).square().mean(tuple(axes), keepdim=True)


@op("BatchNormalization")
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    is_test: int = 1,  # version 6 and before
    consumed_inputs: Sequence[int] | None = None,  # version 1
    outputs: int = 1,
):
    if not spatial:
        raise NotImplementedError("BatchNormalization with spatial = 0")
    if training_mode:
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        batch_mean, batch_var = _variance(x, axes)
        running = (
            mean * momentum + batch_mean.reshape(-1) * (1 - momentum),
            var * momentum + batch_var.reshape(-1) * (1 - momentum),
        )
        mean, var = batch_mean, batch_var
    scale, b, mean, var = (_of_channels(value, x.ndim) for value in (scale, b, mean, var))
    y = ((x - mean) * (scale * (var + epsilon).rsqrt()) + b).cast(x.dtype)
    return (y, *running)[:outputs] if training_mode else y


@op("InstanceNormalization")
def instance_normalization(x: Tensor, scale: Tensor, b: Tensor, epsilon: float = 1e-5, consumed_inputs=None) -> Tensor:
    mean, var = _variance(x, range(2, x.ndim))
    return (x - mean) * (var + epsilon).rsqrt() * _of_channels(scale, x.ndim) + _of_channels(b, x.ndim)


@op("GroupNormalization")
def group_normalization_18(x: Tensor, scale: Tensor, bias: Tensor, num_groups: int, epsilon: float = 1e-5) -> Tensor:
    """Version 18 has a scale for each group, later ones for each channel."""
    each = x.shape[1] // num_groups
    scale, bias = (value.reshape(-1, 1).expand(num_groups, each).flatten() for value in (scale, bias))
    return group_normalization(x, scale, bias, num_groups, epsilon)


@op("GroupNormalization", since=21)
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    groups = x.reshape(x.shape[0], num_groups, -1)
    mean, var = _variance(groups, (2,))
    normal = ((groups - mean) * (var + epsilon).rsqrt()).reshape(x.shape)
    return (normal * _of_channels(scale, x.ndim) + _of_channels(bias, x.ndim)).cast(x.dtype)


@op("LayerNormalization")
def layer_normalization(
    x: Tensor, scale: Tensor, b: Tensor | None = None, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
):
    dtype = x.dtype
    x = x.cast(dtypes.float32) if stash_type == 1 else x
    mean, var = _variance(x, range(axis % x.ndim, x.ndim))
    inverse = (var + epsilon).rsqrt()
    y = ((x - mean) * inverse).cast(dtype) * scale
    return y if b is None else y + b, mean, inverse


@op("RMSNormalization", since=23)
def rms_normalization(x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    wide = x.cast(dtypes.float32) if stash_type == 1 else x
    squares = wide.square().mean(tuple(range(axis % x.ndim, x.ndim)), keepdim=True)
    return (wide * (squares + epsilon).rsqrt()).cast(x.dtype) * scale


@op("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    mean, var = _variance(x, axes)
    return (x - mean) / (var.sqrt() + 1e-9)  # the small number is that of the operator's definition


@op("LpNormalization")
def lp_normalization(x: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    size = x.abs().sum(axis, keepdim=True) if p == 1 else x.square().sum(axis, keepdim=True).sqrt()
    return (size == 0).where(0, x / size)


@op("LRN")
def lrn(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """Divides by a sum over `size` neighbouring channels."""
    before = (size - 1) // 2
    squares = x.square().pad(((0, 0), (before, size - 1 - before), *((0, 0),) * (x.ndim - 2)))
    total = squares[:, : x.shape[1]]
    for i in range(1, size):
        total = total + squares[:, i : i + x.shape[1]]
    return x / (total * (alpha / size) + bias).pow(beta)
