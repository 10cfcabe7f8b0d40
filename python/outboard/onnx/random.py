"""Random numbers. They are Tensor's: `seed` is that of the whole program, Tensor.manual_seed, not of a node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outboard import Tensor, dtypes
from outboard.onnx.registry import op
from outboard.onnx.values import dtype_of


@op("RandomUniform")
def random_uniform(
    shape: Sequence[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return Tensor.uniform(*shape, low=low, high=high, dtype=dtype_of(dtype))


@op("RandomUniformLike")
def random_uniform_like(
    x: Tensor, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return Tensor.uniform(*x.shape, low=low, high=high, dtype=x.dtype if dtype is None else dtype_of(dtype))


@op("RandomNormal")
def random_normal(
    shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return Tensor.normal(*shape, mean=mean, std=scale, dtype=dtype_of(dtype))


@op("RandomNormalLike")
def random_normal_like(
    x: Tensor, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return Tensor.normal(*x.shape, mean=mean, std=scale, dtype=x.dtype if dtype is None else dtype_of(dtype))


@op("Bernoulli")
def bernoulli(x: Tensor, dtype: int | None = None, seed: float | None = None) -> Tensor:
    return (Tensor.rand(*x.shape) < x).cast(x.dtype if dtype is None else dtype_of(dtype))


@op("Multinomial")
def multinomial(x: Tensor, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Tensor:
    return x.softmax(-1).multinomial(sample_size, replacement=True).cast(dtype_of(dtype))


@op("Dropout")
def dropout_1(
    x: Tensor, ratio: float = 0.5, is_test: int = 0, consumed_inputs: Sequence[int] | None = None, outputs: int = 1
):
    """Before version 12 a model is for inference."""
    return x if outputs == 1 else (x, Tensor.ones(x.shape, dtype=dtypes.bool))


@op("Dropout", since=12, host=(1, 2))
def dropout(
    x: Tensor, ratio: np.ndarray | None = None, training_mode: np.ndarray | None = None, seed: int | None = None
):
    share = 0.5 if ratio is None else float(ratio)
    if training_mode is None or not training_mode or share == 0:
        return x, Tensor.ones(x.shape, dtype=dtypes.bool)
    kept = Tensor.rand(*x.shape) >= share
    return kept.where(x / (1 - share), 0).cast(x.dtype), kept
