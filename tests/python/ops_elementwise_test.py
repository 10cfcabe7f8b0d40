"""Elementwise operations and activations against PyTorch: values and gradients, promotion, Python's operators."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ops import Case
from outboard import Tensor, dtypes

ANY, PAIR = [(3, 4)], [(3, 4), (4,)]
INTS = [np.array([-7, -3, 0, 2, 5, 9], np.int32), np.array([2, -2, 5, 3, -4, 7], np.int32)]


def same(name, inputs=ANY, **options):
    """A method that is spelled alike in PyTorch."""
    return Case(name, inputs, lambda x, *others: getattr(x, name)(*others), **options)


CASES = [
    *[same(name, low=-0.9, high=0.9) for name in ["acos", "asin", "atanh"]],
    *[same(name) for name in ["abs", "atan", "asinh", "sinh", "cosh", "tanh", "sin", "cos", "exp", "exp2", "erf", "square", "sigmoid",
                              "relu", "neg"]],
    *[same(name, low=0.2, high=4) for name in ["log", "log2", "log10", "sqrt", "rsqrt", "reciprocal"]],
    *[same(name, low=-9, high=9, gradient=False) for name in ["sign", "trunc", "floor", "ceil", "round"]],
    same("acosh", low=1.1, high=5),
    same("tan", low=-1, high=1),
    *[Case(name, ANY, lambda x, name=name: getattr(x, name)(), lambda x, f=f: f(x), low=-8, high=8) for name, f in [
        ("relu6", F.relu6), ("silu", F.silu), ("swish", F.silu), ("mish", F.mish), ("selu", F.selu), ("celu", F.celu),
        ("elu", F.elu), ("hardswish", F.hardswish), ("hardsigmoid", F.hardsigmoid), ("hardtanh", F.hardtanh),
        ("logsigmoid", F.logsigmoid), ("softsign", F.softsign), ("softplus", F.softplus), ("leaky_relu", F.leaky_relu),
        ("quick_gelu", lambda x: x * torch.sigmoid(1.702 * x)), ("gelu", lambda x: F.gelu(x, approximate="tanh"))]],
    Case("gelu by erf", ANY, lambda x: x.gelu(approximate="none"), lambda x: F.gelu(x)),
    Case("celu alpha", ANY, lambda x: x.celu(0.5), lambda x: F.celu(x, 0.5)),
    Case("elu alpha", ANY, lambda x: x.elu(alpha=0.5), lambda x: F.elu(x, 0.5)),
    Case("hardtanh within", ANY, lambda x: x.hardtanh(-0.5, 0.25), lambda x: F.hardtanh(x, -0.5, 0.25)),
    Case("hardsigmoid slope", ANY, lambda x: x.hardsigmoid(0.5, 0.25), lambda x: (0.5 * x + 0.25).clamp(0, 1)),
    Case("softplus beta", ANY, lambda x: x.softplus(beta=3), lambda x: F.softplus(x, 3)),
    Case("leaky_relu slope", ANY, lambda x: x.leaky_relu(neg_slope=0.42), lambda x: F.leaky_relu(x, 0.42)),
    Case("add", PAIR, lambda x, y: x + y),
    Case("sub", PAIR, lambda x, y: x - y),
    Case("mul", PAIR, lambda x, y: x * y),
    Case("div", PAIR, lambda x, y: x / y, low=0.5),
    Case("pow", PAIR, lambda x, y: x ** y, low=0.5),
    Case("maximum", PAIR, lambda x, y: x.maximum(y)),
    Case("minimum", PAIR, lambda x, y: x.minimum(y)),
    Case("copysign", PAIR, lambda x, y: x.copysign(y)),
    Case("logaddexp", PAIR, lambda x, y: x.logaddexp(y)),
    Case("fmod", PAIR, lambda x, y: x.fmod(y), low=0.5, high=3),
    Case("remainder", PAIR, lambda x, y: x % y, lambda x, y: torch.remainder(x, y), low=0.5, high=3),
    Case("lerp", [(3, 4), (3, 4)], lambda x, y: x.lerp(y, 0.25)),
    Case("lerp by a tensor", [(3, 4), (3, 4), (3, 4)], lambda x, y, w: x.lerp(y, w)),
    Case("where", [np.array([True, False, True, False]), (3, 4), (4,)], lambda c, x, y: c.where(x, y),
         lambda c, x, y: torch.where(c, x, y)),
    Case("where numbers", [np.array([True, False]), (2,)], lambda c, x: c.where(x, 2.5), lambda c, x: torch.where(c, x, 2.5)),
    Case("clamp", ANY, lambda x: x.clamp(-0.5, 0.75)),
    Case("clamp below", ANY, lambda x: x.clamp(min_=0.5), lambda x: x.clamp(min=0.5)),
    Case("clip above", ANY, lambda x: x.clip(max_=0.5), lambda x: x.clip(max=0.5)),
    # Numbers on either side.
    *[Case(f"number {i}", ANY, f, low=0.5, high=3) for i, f in enumerate([
        lambda x: x + 2, lambda x: 2 + x, lambda x: x - 2.5, lambda x: 2.5 - x, lambda x: x * 3, lambda x: 3 * x,
        lambda x: x / 4, lambda x: 4 / x, lambda x: x ** 2, lambda x: x ** 0.5, lambda x: x ** -1.5, lambda x: 2 ** x,
        lambda x: 2.5 ** x, lambda x: x % 0.7, lambda x: -x])],
    *[Case(f"number {i} without a gradient in PyTorch", ANY, f, low=0.5, high=3, gradient=False) for i, f in enumerate([
        lambda x: x // 0.7, lambda x: 7 // x, lambda x: 7 % x])],
    *[Case(f"integers {i}", INTS, f) for i, f in enumerate([
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y, lambda x, y: x // y, lambda x, y: x % y,
        lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y, lambda x, y: ~x, lambda x, y: -x, lambda x, y: x < y,
        lambda x, y: x > y, lambda x, y: x <= y, lambda x, y: x >= y, lambda x, y: x == y, lambda x, y: x != y,
        lambda x, y: x.fmod(y), lambda x, y: x ** 3, lambda x, y: x ** 0, lambda x, y: x << 2, lambda x, y: x >> 1,
        lambda x, y: x.maximum(y), lambda x, y: x.minimum(y), lambda x, y: x.abs(), lambda x, y: x.sign(),
        lambda x, y: 7 // y, lambda x, y: 7 % y, lambda x, y: 100 - x, lambda x, y: x & 6, lambda x, y: 3 | x,
        lambda x, y: x * 1.5, lambda x, y: x.square(), lambda x, y: x.logical_not(), lambda x, y: x.relu(),
        lambda x, y: x.exp(), lambda x, y: x.clamp(-2, 4)])],
    Case("floor division", INTS, lambda x, y: x.div(y, rounding_mode="floor")),
    Case("truncating division", INTS, lambda x, y: x.div(y, rounding_mode="trunc")),
    Case("rounded quotient", PAIR, lambda x, y: x.div(y, rounding_mode="trunc"), low=0.5, gradient=False),
    Case("an integer power of integers", [np.array([2, -3, 0, 1], np.int32), np.array([5, 3, 0, 9], np.int32)],
         lambda x, y: x ** y),
    *[Case(f"truths {i}", [np.array([True, True, False]), np.array([True, False, False])], f) for i, f in enumerate([
        lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y, lambda x, y: ~x, lambda x, y: x + y, lambda x, y: x * y,
        lambda x, y: x == y, lambda x, y: x.maximum(y), lambda x, y: x + 1, lambda x, y: x * 2.5])],
    Case("isnan", [np.array([1, np.nan, np.inf, -np.inf], np.float32)], lambda x: x.isnan()),
    Case("isfinite", [np.array([1, np.nan, np.inf, -np.inf], np.float32)], lambda x: x.isfinite()),
    Case("isinf", [np.array([1, np.nan, np.inf, -np.inf], np.float32)], lambda x: x.isinf()),
    Case("isinf above", [np.array([1, np.nan, np.inf, -np.inf], np.float32)], lambda x: x.isinf(detect_negative=False),
         lambda x: x.isposinf()),
    Case("isinf below", [np.array([1, np.nan, np.inf, -np.inf], np.float32)], lambda x: x.isinf(detect_positive=False),
         lambda x: x.isneginf()),
    Case("isclose", [np.array([1, 1, np.nan, np.inf], np.float32), np.array([1.000001, 1.1, np.nan, np.inf], np.float32)],
         lambda x, y: x.isclose(y)),
    Case("isclose with NaN", [np.array([1, np.nan], np.float32), np.array([1, np.nan], np.float32)],
         lambda x, y: x.isclose(y, equal_nan=True)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


def test_allclose():
    x = Tensor([1.0, 2.0])
    assert x.allclose(x + 1e-7).item() is True and x.allclose(x + 0.1).item() is False
    assert x.allclose(x + 0.1, atol=0.2).item() is True


WIDTHS = {"bool": bool, "float": np.float32, "double": np.float64, "half": np.float16, "int": np.int32, "long": np.int64,
          "short": np.int16}


@pytest.mark.parametrize("name", WIDTHS)
def test_casts_by_name(name):
    values = np.array([-1.5, 0, 0.25, 3.75], np.float32)
    got = getattr(Tensor(values), name)()
    np.testing.assert_array_equal(got.numpy(), values.astype(WIDTHS[name]))
    assert got.dtype == getattr(dtypes, name) and got.element_size() == np.dtype(WIDTHS[name]).itemsize
    assert got.nbytes() == 4 * got.element_size() and got.is_floating_point() == (np.dtype(WIDTHS[name]).kind == "f")
    assert Tensor(values).cast(name).dtype == got.dtype


def test_bfloat16():
    assert Tensor([1.001, 3.1415]).bfloat16().numpy().tolist() == [1.0, 3.140625]


@pytest.mark.parametrize("source", [np.uint8, np.int16, np.float16, np.int32, np.float32, np.uint64, np.float64])
@pytest.mark.parametrize("target", ["uint8", "int16", "float16", "uint32", "float32", "int64", "float64"])
def test_bitcast(source, target):
    values = np.arange(1, 33).astype(source).reshape(2, 16)
    got, wanted = Tensor(values).bitcast(target), values.view(target)
    assert got.shape == wanted.shape and got.dtype == getattr(dtypes, target)
    assert got.numpy().tobytes() == wanted.tobytes()


def test_bitcast_needs_whole_elements():
    with pytest.raises(ValueError, match="bitcast"):
        Tensor([1, 2, 3], dtype="uint8").bitcast("int32")


@pytest.mark.parametrize("op", ["+=", "-=", "*=", "/=", "//=", "%=", "**="])
def test_in_place_keeps_the_tensor(op):
    x, scope = Tensor([1.5, 4.0, 9.0]), {}
    other = x
    scope["x"] = x
    exec(f"x {op} 2", scope)
    wanted = np.array([1.5, 4, 9], np.float32)
    exec(f"wanted {op} 2", {"wanted": wanted})
    assert scope["x"] is other
    np.testing.assert_allclose(other.numpy(), wanted)


@pytest.mark.parametrize("op", ["&=", "|=", "^=", "<<=", ">>="])
def test_in_place_of_integers(op):
    scope = {"x": Tensor([1, 6, 9]), "wanted": np.array([1, 6, 9])}
    exec(f"x {op} 2\nwanted {op} 2", scope)
    np.testing.assert_array_equal(scope["x"].numpy(), scope["wanted"])


def test_in_place_keeps_the_type():
    x = Tensor([1, 2])
    with pytest.raises(ValueError, match="float32|f32"):
        x /= 2
    assert x.dtype == dtypes.int32


def test_what_python_asks_of_an_object():
    x = Tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="__bool__"):
        bool(x == x)
    assert len(x) == 2 and len({x: 1, Tensor([1.0]): 2}) == 2 and hash(x) == hash(x)
    with pytest.raises(TypeError):
        len(Tensor(3))
    assert (x == None) is False and (x != None) is True  # noqa: E711: what it is compared with is no number
    for wrong in ["a", [1], None, 1j]:
        with pytest.raises(TypeError):
            x + wrong


@pytest.mark.parametrize("call", [lambda x: x.gelu("fast"), lambda x: x.div(2, rounding_mode="up"), lambda x: x.clamp(),
                                  lambda x: ~x, lambda x: x << 1, lambda x: x & 1, lambda x: Tensor([2]) ** -1,
                                  lambda x: Tensor([1], dtype="uint8") + 300, lambda x: x + Tensor([1.0, 2.0, 3.0]),
                                  lambda x: Tensor([True]) - Tensor([True])])
def test_mistakes(call):
    with pytest.raises((ValueError, RuntimeError)):
        call(Tensor([1.0, 2.0]))


def test_lerp_of_pictures_stays_bytes():
    a, b = Tensor([0, 100, 200], dtype="uint8"), Tensor([255, 50, 200], dtype="uint8")
    got = a.lerp(b, Tensor([0.5, 0.5, 0.25]))
    assert got.dtype == dtypes.uint8 and got.tolist() == [128, 75, 200]


def test_threefry_as_published():
    counter, key = Tensor([0, 0x85A308D3243F6A88], dtype="uint64"), Tensor([0, 0x0370734413198A2E], dtype="uint64")
    assert counter.threefry(key).tolist() == [0x99BA4EFE6B200159, 0x483DF7A0C4923A9C]
