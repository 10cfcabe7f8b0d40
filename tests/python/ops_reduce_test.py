"""Reductions and scans against PyTorch: values, types and gradients."""
import numpy as np
import pytest
import torch

from ops import Case
from outboard import Tensor, dtypes

CUBE = [(2, 3, 4)]
BYTES = [np.array([[100, 100, 3], [-5, 7, 90]], np.int8)]
TRUTHS = [np.array([[True, False, True], [True, True, True]])]
SPECIAL = [np.array([[1, np.nan, 3], [-np.inf, 2, np.inf]], np.float32)]


def over(name, theirs=None, **options):
    """One reduction over all axes, one, several, and with those kept."""
    f = theirs or (lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs))
    return [
        Case(f"{name} all", CUBE, lambda x: getattr(x, name)(), lambda x: f(x, (0, 1, 2)), **options),
        Case(f"{name} axis", CUBE, lambda x: getattr(x, name)(1), lambda x: f(x, 1), **options),
        Case(f"{name} last kept", CUBE, lambda x: getattr(x, name)(axis=-1, keepdim=True), lambda x: f(x, -1, keepdim=True),
             **options),
        Case(f"{name} axes", CUBE, lambda x: getattr(x, name)((0, -1)), lambda x: f(x, (0, -1)), **options),
    ]


def prod(x, dim, keepdim=False):
    for axis in sorted((dim,) if isinstance(dim, int) else [d % x.ndim for d in dim], reverse=True):
        x = x.prod(axis, keepdim=keepdim)
    return x


CASES = [
    *over("sum"), *over("mean"), *over("prod", prod), *over("max", lambda x, d, keepdim=False: x.amax(d, keepdim)),
    *over("min", lambda x, d, keepdim=False: x.amin(d, keepdim)),
    *over("var", lambda x, d, keepdim=False: x.var(d, keepdim=keepdim)),
    *over("std", lambda x, d, keepdim=False: x.std(d, keepdim=keepdim)),
    *over("logsumexp"),
    Case("var of all", CUBE, lambda x: x.var(correction=0), lambda x: x.var(unbiased=False)),
    Case("std with a correction", CUBE, lambda x: x.std(1, correction=0), lambda x: x.std(1, unbiased=False)),
    Case("var_mean", CUBE, lambda x: x.var_mean(1), lambda x: torch.var_mean(x, 1)),
    Case("std_mean", CUBE, lambda x: x.std_mean(axis=(0, 2), keepdim=True), lambda x: torch.std_mean(x, (0, 2), keepdim=True)),
    Case("no axes", CUBE, lambda x: x.sum(axis=()), lambda x: x.clone()),
    Case("softmax", CUBE, lambda x: x.softmax(), lambda x: x.softmax(-1)),
    Case("softmax axis", CUBE, lambda x: x.softmax(axis=0), lambda x: x.softmax(0)),
    Case("softmax axes", CUBE, lambda x: x.softmax((1, 2)), lambda x: x.flatten(1).softmax(-1).reshape(x.shape)),
    Case("softmax of all", CUBE, lambda x: x.softmax(None), lambda x: x.flatten().softmax(0).reshape(x.shape)),
    Case("softmax in double", CUBE, lambda x: x.softmax(dtype="double"), lambda x: x.softmax(-1, dtype=torch.double)),
    Case("log_softmax", CUBE, lambda x: x.log_softmax(), lambda x: x.log_softmax(-1)),
    Case("log_softmax axis", CUBE, lambda x: x.log_softmax(1), lambda x: x.log_softmax(1)),
    Case("softmin", CUBE, lambda x: x.softmin(1), lambda x: torch.nn.functional.softmin(x, 1)),
    *[Case(f"{name} {axis}", CUBE, lambda x, n=name, a=axis: getattr(x, n)(a)) for name in ["cumsum", "cumprod", "logcumsumexp"]
      for axis in [0, 1, -1]],
    Case("cumsum by default", CUBE, lambda x: x.cumsum(), lambda x: x.cumsum(0)),
    Case("cumsum of many", [(700,)], lambda x: x.cumsum(), lambda x: x.cumsum(0), rtol=1e-3),
    Case("cumprod of many", [(600,)], lambda x: x.cumprod(0), low=0.97, high=1.03, rtol=1e-3),
    Case("logcumsumexp of nothing", [np.array([-np.inf, -np.inf, 1, 2], np.float32)], lambda x: x.logcumsumexp(0),
         gradient=False),
    *[Case(f"{name} {axis}", CUBE, lambda x, n=name, a=axis: getattr(x, n)(a)[0]) for name in ["cummax", "cummin"]
      for axis in [0, 2]],
    Case("cummax of many", [(700,)], lambda x: x.cummax()[0], lambda x: x.cummax(0)[0]),
    Case("a long axis", [(3, 5000)], lambda x: x.sum(1), rtol=1e-3, atol=1e-3),
    # Types that are not floats.
    Case("sum of bytes", BYTES, lambda x: x.sum(1)),
    Case("mean of bytes", BYTES, lambda x: x.mean(1), lambda x: x.float().mean(1)),
    Case("max of bytes", BYTES, lambda x: x.max(1), lambda x: x.amax(1)),
    Case("min of bytes", BYTES, lambda x: x.min(0), lambda x: x.amin(0)),
    Case("sum of truths", TRUTHS, lambda x: x.sum(1)),
    Case("any", TRUTHS, lambda x: x.any(0)),
    Case("all", TRUTHS, lambda x: x.all(1)),
    Case("any of all", TRUTHS, lambda x: x.any()),
    Case("all kept", TRUTHS, lambda x: x.all(axis=0, keepdim=True), lambda x: x.all(0, keepdim=True)),
    Case("max of truths", TRUTHS, lambda x: x.max(1), lambda x: x.amax(1)),
    Case("cumsum of truths", TRUTHS, lambda x: x.cumsum(1)),
    *[Case(f"NaN: {name}", SPECIAL, lambda x, n=name: getattr(x, n)(1), lambda x, n=other: getattr(x, n)(1), gradient=False)
      for name, other in [("sum", "sum"), ("max", "amax"), ("min", "amin"), ("mean", "mean")]],
    *[Case(f"{name} {axis}", [(4, 5)], lambda x, n=name, a=axis: getattr(x, n)(a), gradient=False)
      for name in ["argmax", "argmin"] for axis in [None, 0, -1]],
    Case("argmax kept", [(4, 5)], lambda x: x.argmax(1, keepdim=True), lambda x: x.argmax(1, keepdim=True), gradient=False),
    Case("of a scalar", [np.array(3, np.float32)], lambda x: x.sum() + x.max(), gradient=False),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize("name, dtype, wanted", [
    ("sum", "int8", "int32"), ("sum", "uint8", "uint32"), ("sum", "int64", "int64"), ("sum", "bool", "int32"),
    ("sum", "float16", "float16"), ("sum", "bfloat16", "bfloat16"), ("prod", "int8", "int8"), ("prod", "bool", "bool"),
    ("mean", "int8", "float32"), ("mean", "float16", "float16"), ("mean", "float64", "float64"), ("max", "uint8", "uint8"),
    ("max", "bool", "bool"), ("min", "int16", "int16"), ("any", "float32", "bool"), ("all", "int32", "bool"),
    ("var", "int32", "float32"), ("std", "float16", "float16"), ("argmax", "float32", "int32"), ("softmax", "int32", "float32"),
    ("logsumexp", "bool", "float32"), ("cumsum", "int8", "int32"), ("cumsum", "bool", "int32")])
def test_types(name, dtype, wanted):
    assert getattr(Tensor.ones(2, 3, dtype=dtype), name)().dtype == getattr(dtypes, wanted)


def test_asked_for_types():
    x = Tensor([100, 100, 100], dtype="int8")
    assert x.sum(dtype="int8").item() == 44 and x.sum(dtype=dtypes.float64).dtype == dtypes.float64
    assert x.prod().item() == 64 and x.prod(dtype="int64").item() == 10 ** 6
    assert x.cumprod(0).dtype == dtypes.int8
    many = Tensor.ones(5000, dtype="half")
    assert many.sum().item() == 5000


def test_scalars_and_nothing():
    x = Tensor(2.5)
    assert x.sum(0).item() == 2.5 and x.softmax(-1).item() == 1 and x.cumsum(0).item() == 2.5 and x.max(-1).shape == ()
    assert [t.item() for t in x.cummax()] == [2.5, 0]
    nothing = Tensor.zeros(0, 3)
    assert nothing.sum(0).tolist() == [0, 0, 0] and nothing.prod(0).tolist() == [1, 1, 1]
    assert np.isnan(nothing.mean(0).numpy()).all() and nothing.cumsum(0).shape == (0, 3)


def test_places_are_the_first():
    values, places = Tensor([0, 1, 1, 3, 3, 2]).cummax()
    assert values.tolist() == [0, 1, 1, 3, 3, 3] and places.tolist() == [0, 1, 1, 3, 3, 3]
    values, places = Tensor([[2.0, 2.0, 1.0, 1.0]]).cummin(axis=1)
    assert values.tolist() == [[2, 2, 1, 1]] and places.tolist() == [[0, 0, 2, 2]] and places.dtype == dtypes.int32
    assert Tensor([1, 3, 3]).argmax().item() == 1 and Tensor([1, 0, 0]).argmin().item() == 1


@pytest.mark.parametrize("call", [lambda x: x.sum(2), lambda x: x.sum((0, 0)), lambda x: x.cumsum(5), lambda x: x.argmax(-3),
                                  lambda x: x.softmax(7)])
def test_mistakes(call):
    with pytest.raises(ValueError):
        call(Tensor.ones(2, 3))
