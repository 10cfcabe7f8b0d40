"""Steps of optimisers (ai.onnx.preview.training): rate, count of steps; parameters, gradients and states in groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from outboard import Tensor
from outboard.onnx.registry import op

_DOMAIN = "ai.onnx.preview.training"


def _each(inputs: tuple[Tensor, ...], kinds: int, step: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """`step` of each parameter with what belongs to it; the results in groups again."""
    count = len(inputs) // kinds
    results = [step(*inputs[i::count]) for i in range(count)]
    return tuple(value for group in zip(*results, strict=True) for value in group)


@op("Adagrad", domain=_DOMAIN, host=(1,))
def adagrad(
    rate: Tensor,
    steps: np.ndarray,
    *inputs: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
):
    rate = rate / (1 + int(steps) * decay_factor)

    def step(x: Tensor, gradient: Tensor, squares: Tensor):
        gradient = norm_coefficient * x + gradient
        squares = squares + gradient * gradient
        return x - rate * gradient / (squares.sqrt() + epsilon), squares

    return _each(inputs, 3, step)


@op("Adam", domain=_DOMAIN, host=(1,))
def adam(
    rate: Tensor,
    steps: np.ndarray,
    *inputs: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
):
    t = int(steps)
    rate = rate if t == 0 else rate * ((1 - beta**t) ** 0.5 / (1 - alpha**t))

    def step(x: Tensor, gradient: Tensor, mean: Tensor, squares: Tensor):
        gradient = norm_coefficient * x + gradient
        mean = alpha * mean + (1 - alpha) * gradient
        squares = beta * squares + (1 - beta) * gradient * gradient
        x = x - rate * mean / (squares.sqrt() + epsilon)
        return (1 - norm_coefficient_post) * x, mean, squares

    return _each(inputs, 4, step)


@op("Momentum", domain=_DOMAIN, host=(1,))
def momentum(
    rate: Tensor, steps: np.ndarray, *inputs: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float
):
    share = beta if int(steps) > 0 else 1.0

    def step(x: Tensor, gradient: Tensor, velocity: Tensor):
        gradient = norm_coefficient * x + gradient
        velocity = alpha * velocity + share * gradient
        return x - rate * (gradient + alpha * velocity if mode == "nesterov" else velocity), velocity

    return _each(inputs, 3, step)
