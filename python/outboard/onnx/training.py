"""ai.onnx.preview.training: gradients, and steps of optimisers.

A step has a rate, the count of steps before, then all parameters, all their gradients, and all of each kind of state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from outboard import Tensor
from outboard.onnx.graph import Scope
from outboard.onnx.registry import op
from outboard.onnx.values import tensor_of

_DOMAIN = "ai.onnx.preview.training"


def _each(inputs: tuple[Tensor, ...], kinds: int, step: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """`step` of each parameter with what belongs to it; the results in groups again."""
    count = len(inputs) // kinds
    results = [step(*inputs[i::count]) for i in range(count)]
    return tuple(value for group in zip(*results, strict=True) for value in group)


@op("Gradient", domain=_DOMAIN)
def gradient(*inputs: Tensor, xs: Sequence[str], y: str, scope: Scope, zs: Sequence[str] = ()) -> tuple[Tensor, ...]:
    """Of the value `y` by those named `xs`, which come first among the inputs; the others only fix what `y` is of."""
    return tuple(tensor_of(scope[y]).sum().gradient(*(tensor_of(scope[name]) for name in xs)))


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
