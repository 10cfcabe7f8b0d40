"""Sorting, scattering and masks, against PyTorch."""
import math

import numpy as np
import pytest
import torch

from ops import Case
from outboard import Tensor, dtypes


def ints(*values, dtype=np.int64):
    return np.array(values, dtype=dtype)


TIES = np.array([[3, 1, 3, 1, 2, 2, 1], [0, 0, 0, 5, 5, -1, 7]], dtype=np.int32)

ORDER = [
    Case(f"sort, dim={dim}, descending={descending}", [(3, 5, 4)],
         lambda x, d=dim, r=descending: x.sort(d, descending=r),
         lambda x, d=dim, r=descending: torch.sort(x, dim=d, descending=r, stable=True))
    for dim in (-1, 0, 1) for descending in (False, True)
]
ORDER += [
    Case(f"sort of {n}", [(2, n)], lambda x: x.sort(), lambda x: torch.sort(x, stable=True))
    for n in (1, 2, 3, 8, 31, 64, 100, 1000)
]
ORDER += [
    Case("sort of equal ints", [TIES], lambda x: x.sort(), lambda x: torch.sort(x, stable=True)),
    Case("sort of equal ints, descending", [TIES], lambda x: x.sort(descending=True),
         lambda x: torch.sort(x, descending=True, stable=True)),
    Case("sort of u8", [np.array([200, 3, 255, 0], dtype=np.uint8)], lambda x: x.sort()),
    Case("sort of i64", [np.array([2**40, -2**60, 5, -1], dtype=np.int64)], lambda x: x.sort()),
    Case("sort of f64", [np.array([1e300, -1e-300, 0.0, -5.0])], lambda x: x.sort()),
    Case("sort of f16", [np.array([1.5, -2.5, 0.25, 60000], dtype=np.float16)], lambda x: x.sort(), gradient=False),
    Case("sort of bool", [np.array([True, False, True, False])], lambda x: x.sort(),
         lambda x: torch.sort(x, stable=True)),
    Case("sort of nothing", [(3, 0)], lambda x: x.sort()),
    Case("argsort", [(4, 6)], lambda x: x.argsort()),
    Case("argsort along 0, descending", [(4, 6)], lambda x: x.argsort(0, True)),
    Case("argsort of argsort", [(9,)], lambda x: x.argsort().argsort()),
]
ORDER += [
    Case(f"topk {k}, largest={largest}", [(3, 150)], lambda x, k=k, g=largest: x.topk(k, largest=g))
    for k in (1, 2, 7, 33, 100, 150) for largest in (True, False)
]
ORDER += [
    Case("topk along 0", [(9, 4)], lambda x: x.topk(3, 0), lambda x: torch.topk(x, 3, 0)),
    Case("topk of none", [(4, 3)], lambda x: x.topk(0)),
    Case("topk of a long row", [(2, 5000)], lambda x: x.topk(5)),
]


# Rows too long to compare all elements with each other are sorted by exchanges.
LONG = np.random.default_rng(7)
MANY_TIES = LONG.integers(-3, 4, (2, 5001)).astype(np.int32)
ORDER += [
    Case(f"sort of {n}", [(2, n)], lambda x: x.sort(), lambda x: torch.sort(x, stable=True))
    for n in (4097, 8192, 10007)
]
ORDER += [
    Case("long sort, descending", [(5000,)], lambda x: x.sort(descending=True),
         lambda x: torch.sort(x, descending=True, stable=True)),
    Case("long sort along 0", [(4500, 3)], lambda x: x.sort(0), lambda x: torch.sort(x, dim=0, stable=True)),
    Case("long sort of ties", [MANY_TIES], lambda x: x.sort(), lambda x: torch.sort(x, stable=True)),
    Case("long sort of ties, descending", [MANY_TIES], lambda x: x.sort(descending=True),
         lambda x: torch.sort(x, descending=True, stable=True)),
    Case("long sort of i64", [LONG.integers(-2**62, 2**62, 5000)], lambda x: x.sort()),
    Case("long sort of f64", [LONG.standard_normal(5000) * 1e300], lambda x: x.sort()),
    Case("long sort of the largest ints", [np.where(LONG.random(5000) < 0.5, 2**31 - 1, -2**31).astype(np.int32)],
         lambda x: x.sort(), lambda x: torch.sort(x, stable=True)),
    Case("long argsort", [(6000,)], lambda x: x.argsort(), lambda x: torch.argsort(x, stable=True)),
    Case("values of topk of half a long row", [(10000,)], lambda x: x.topk(5000)[0]),
]


@pytest.mark.parametrize("case", ORDER, ids=str)
def test_order(case):
    case.check()


def test_nan_and_padding_of_a_long_row():
    x = LONG.standard_normal(4500).astype(np.float32)
    x[::7] = math.nan
    x[::11] = math.inf
    got = Tensor(x).argsort().numpy()
    np.testing.assert_array_equal(got, np.argsort(x, kind="stable"))


def test_nan_is_larger_than_everything():
    x = [1.0, math.nan, -math.inf, math.inf, -0.0, 0.0, math.nan, -5.0]
    assert Tensor(x).argsort().tolist() == [2, 7, 4, 5, 0, 3, 1, 6]
    assert Tensor(x).argsort(descending=True).tolist() == [1, 6, 3, 0, 4, 5, 7, 2]
    assert Tensor(x).topk(3)[1].tolist() == [1, 6, 3]


def test_order_errors():
    x = Tensor.zeros(3, 4)
    assert x.sort()[1].dtype == dtypes.int32
    with pytest.raises(ValueError):
        x.topk(5)
    with pytest.raises(NotImplementedError):
        x.topk(2, sorted_=False)
    with pytest.raises((IndexError, ValueError)):
        x.sort(2)


# ---- scatter ---------------------------------------------------------------------------------------------------------

INDEX = ints([0, 1, 2, 0], [2, 2, 1, 0])
ONCE = ints([0, 1, 2, 0], [2, 2, 1, 1])  # no place twice along 0: PyTorch leaves open which one stays

SCATTER = [
    Case("scatter along 0", [(3, 5), ONCE, (2, 4)], lambda x, i, s: x.scatter(0, i, s)),
    Case("scatter along 1", [(3, 5), ints([0, 1, 4], [3, 1, 0]), (2, 3)], lambda x, i, s: x.scatter(1, i, s)),
    Case("scatter along -1", [(2, 3, 4), ints([[3], [0]]), (1, 2, 1)], lambda x, i, s: x.scatter(-1, i, s)),
    Case("scatter of a longer source", [(3, 5), ONCE, (4, 6)], lambda x, i, s: x.scatter(0, i, s), gradient=False),
    Case("scatter of a number", [(3, 5), INDEX], lambda x, i: x.scatter(0, i, 7.5)),
    Case("scatter of ints", [np.zeros((3, 4), np.int32), ONCE, np.arange(8, dtype=np.int32).reshape(2, 4)],
         lambda x, i, s: x.scatter(0, i, s)),
    Case("scatter of bool", [np.zeros((3, 4), bool), INDEX], lambda x, i: x.scatter(0, i, True)),
    Case("scatter add", [(3, 5), INDEX], lambda x, i: x.scatter(0, i, 2.0, reduce="add"), gradient=False),
    Case("scatter multiply", [(3, 5), INDEX], lambda x, i: x.scatter(0, i, 2.0, reduce="multiply"), gradient=False),
]
SCATTER += [
    Case(f"scatter_reduce {how}, include_self={own}, dim={dim}", [(3, 5), index, index.shape],
         lambda x, i, s, how=how, own=own, dim=dim: x.scatter_reduce(dim, i, s, how, include_self=own))
    for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)
    for dim, index in ((0, INDEX), (1, ints([4, 4, 0], [1, 1, 1])))
]
SCATTER += [
    Case(f"scatter_reduce {how} of ints", [np.arange(12, dtype=np.int32).reshape(3, 4), INDEX,
                                           np.arange(10, 18, dtype=np.int32).reshape(2, 4)],
         lambda x, i, s, how=how: x.scatter_reduce(0, i, s, how))
    for how in ("sum", "prod", "amax", "amin")
]


@pytest.mark.parametrize("case", SCATTER, ids=str)
def test_scatter(case):
    case.check()


def test_scatter_keeps_the_last():
    index, source = Tensor([[0, 0, 0]]), Tensor([[1.0, 2.0, 3.0]])
    assert Tensor.zeros(1, 3).scatter(1, index, source).tolist() == [[3, 0, 0]]


def test_scatter_errors():
    x, index = Tensor.zeros(3, 4), Tensor([[0, 1]])
    with pytest.raises(RuntimeError):
        x.scatter(0, index, Tensor([[1, 2]]))  # ints to floats
    with pytest.raises(TypeError):
        x.scatter(0, index, 1.0, reduce="mean")
    with pytest.raises(TypeError):
        x.scatter(0, index, Tensor([[1.0, 2.0]]), reduce="add")
    with pytest.raises(RuntimeError):
        x.scatter_reduce(0, index, Tensor([[1.0, 2.0]]), "median")
    with pytest.raises(ValueError):
        x.scatter(0, Tensor([0, 1]), 1.0)
    with pytest.raises(ValueError):
        x.scatter(0, Tensor([[0, 1, 2]]), Tensor([[1.0, 2.0]]))


# ---- masks -----------------------------------------------------------------------------------------------------------

MASK = np.array([[True, False, True], [False, False, True]])

MASKS = [
    Case("masked_fill", [(2, 3), MASK], lambda x, m: x.masked_fill(m, -1.5)),
    Case("masked_fill that broadcasts", [(4, 2, 3), MASK], lambda x, m: x.masked_fill(m, float("-inf"))),
    Case("masked_fill of a tensor", [(2, 3), MASK, ()], lambda x, m, v: x.masked_fill(m, v)),
    Case("masked_select", [(2, 3), MASK], lambda x, m: x.masked_select(m)),
    Case("masked_select that broadcasts", [(4, 2, 3), MASK], lambda x, m: x.masked_select(m)),
    Case("masked_select of none", [(2, 3), np.zeros((2, 3), bool)], lambda x, m: x.masked_select(m)),
    Case("masked_select of ints", [np.arange(6, dtype=np.int32).reshape(2, 3), MASK], lambda x, m: x.masked_select(m)),
    Case("masked_select of 3000", [(3000,)], lambda x: x.masked_select(x > 0.3)),
    Case("nonzero", [np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]], np.float32)], lambda x: x.nonzero(),
         gradient=False),
    Case("nonzero of ints", [np.arange(24, dtype=np.int32).reshape(2, 3, 4) % 3], lambda x: x.nonzero()),
    Case("nonzero of bool", [MASK], lambda x: x.nonzero()),
    Case("nonzero of zeros", [np.zeros((2, 3), np.int32)], lambda x: x.nonzero()),
    Case("nonzero of a scalar", [np.array(3, np.int32)], lambda x: x.nonzero()),
]


@pytest.mark.parametrize("case", MASKS, ids=str)
def test_mask(case):
    case.check()


def test_sizes_that_are_given():
    x, mask = Tensor([[0, 1, 2], [3, 4, 5]]), Tensor(MASK)
    assert x.masked_select(mask, size=5, fill_value=-1).tolist() == [0, 2, 5, -1, -1]
    assert x.masked_select(mask, size=2).tolist() == [0, 2]
    assert mask.nonzero(size=4, fill_value=9).tolist() == [[0, 0], [0, 2], [1, 2], [9, 9]]
    with pytest.raises(RuntimeError):
        x.masked_select(x)
