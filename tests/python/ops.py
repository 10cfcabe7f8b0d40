"""Operators as tables of cases: each is run here and by PyTorch on the same numbers, forward and gradient.

    CASES = [Case("relu", [(3, 4)], lambda x: x.relu()),
             Case("cat", [(2, 3), (4, 3)], lambda x, y: x.cat(y, dim=0), lambda x, y: torch.cat([x, y], dim=0))]

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_case(case):
        case.check()

The gradient is that of the sum of every result times fixed random weights, so that no place of it can hide.
"""
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np
import torch

from outboard import Tensor


@dataclass
class Case:
    name: str
    inputs: Sequence[Any]  # shapes, of which floats are drawn, or NumPy arrays
    ours: Callable
    theirs: Callable | None = None  # None: `ours` works on PyTorch's tensors as it is
    low: float = -2.0
    high: float = 2.0
    gradient: bool = True
    rtol: float = 1e-4
    atol: float = 1e-5

    def __str__(self) -> str:
        return self.name

    def arrays(self) -> list[np.ndarray]:
        random = np.random.default_rng(len(self.name))
        return [x if isinstance(x, np.ndarray) else random.uniform(self.low, self.high, x).astype(np.float32)
                for x in self.inputs]

    def check(self) -> None:
        arrays = self.arrays()
        theirs = [torch.from_numpy(x.copy()) for x in arrays]
        ours = [Tensor(x) for x in arrays]
        differentiable = [i for i, x in enumerate(arrays) if self.gradient and x.dtype.kind == "f"]
        for i in differentiable:
            theirs[i].requires_grad_()
            ours[i].requires_grad_()
        wanted = as_list((self.theirs or self.ours)(*theirs))
        got = as_list(self.ours(*ours))
        assert len(got) == len(wanted)
        weights = [np.random.default_rng(i).uniform(0.5, 1.5, tuple(y.shape)).astype(np.float32)
                   for i, y in enumerate(wanted)]
        floats = [i for i, y in enumerate(wanted) if y.is_floating_point() and y.requires_grad]
        if differentiable and floats:
            sum((wanted[i] * torch.from_numpy(weights[i])).sum() for i in floats).backward()
            loss = (got[floats[0]] * Tensor(weights[floats[0]])).sum()
            for i in floats[1:]:
                loss = loss + (got[i] * Tensor(weights[i])).sum()
            loss.backward()
        gradients = [i for i in differentiable if theirs[i].grad is not None]
        got[0].realize(*got[1:], *(ours[i].grad for i in gradients))
        for y, expected in zip(got, wanted):
            self.compare(y.numpy(), expected.detach().numpy())
        for i in gradients:
            self.compare(ours[i].grad.numpy(), theirs[i].grad.numpy(), f"gradient of input {i}")

    def compare(self, got: np.ndarray, wanted: np.ndarray, what: str = "result") -> None:
        assert got.shape == wanted.shape, what
        assert got.dtype.kind == wanted.dtype.kind, f"{what}: {got.dtype}, not {wanted.dtype}"
        np.testing.assert_allclose(got, wanted, rtol=self.rtol, atol=self.atol, err_msg=what)


def as_list(results) -> list:
    return list(results) if isinstance(results, (tuple, list)) else [results]
