"""Promotion pair by pair against tinygrad's, what numbers of Python become, and what `dtypes` tells."""
import itertools
import operator

import numpy as np
import pytest
from tinygrad.dtype import dtypes as theirs, least_upper_dtype as their_least_upper

from outboard import Context, Tensor, dtypes, nn
from outboard.dtypes import least_upper_dtype, to_dtype

NAMES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "fp8e4m3", "fp8e5m2", "float16",
         "bfloat16", "float32", "float64"]
# What a program sees where tinygrad would still say weakint or weakfloat.
STRONG = {"weakint": "int", "weakfloat": "float"}


@pytest.mark.parametrize("a, b", itertools.combinations_with_replacement(NAMES, 2))
def test_promotion(a, b):
    ours = getattr(dtypes, a), getattr(dtypes, b)
    wanted = their_least_upper(getattr(theirs, a), getattr(theirs, b))
    wanted = getattr(theirs, STRONG.get(wanted.name, ""), wanted)
    name = next(name for name in NAMES if getattr(theirs, name) == wanted)
    assert least_upper_dtype(*ours) == least_upper_dtype(*ours[::-1]) == getattr(dtypes, name)
    assert (Tensor.ones(2, dtype=a) * Tensor.ones(2, dtype=b)).dtype == getattr(dtypes, name)


def test_uint64_beside_a_signed_integer():
    u = np.array([0, 2**64 - 1, 2**63, 2**63 - 1, 2**53 + 1, 7], dtype=np.uint64)
    s = np.array([-1, -1, -2**63, 2**63 - 1, 2**53, 7], dtype=np.int64)
    x, y = Tensor(u), Tensor(s)
    pairs = list(zip(u.tolist(), s.tolist()))
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        assert compare(x, y).tolist() == [compare(a, b) for a, b in pairs]
        assert compare(y, x).tolist() == [compare(b, a) for a, b in pairs]
    assert (x + y).dtype == dtypes.float32
    np.testing.assert_allclose((x + y).numpy(), u.astype(np.float64) + s.astype(np.float64), rtol=1e-6, atol=1)
    with Context(DEFAULT_FLOAT="float64"):
        assert (x * y).dtype == least_upper_dtype(dtypes.uint64, dtypes.int8) == dtypes.float64
    assert (x + 1).dtype == dtypes.uint64 and (x + 1).tolist() == [1, 0, 2**63 + 1, 2**63, 2**53 + 2, 8]
    for integers_only in (lambda: x & y, lambda: x << y, lambda: x ^ y):
        with pytest.raises(ValueError, match="needs integers"):
            integers_only()


def test_uint64_as_an_index():
    table, places = Tensor([10, 20, 30]), Tensor([2, 0], dtype="uint64")
    assert table[places].tolist() == table.gather(0, places).tolist() == [30, 10]
    assert places.one_hot(3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert table.scatter(0, places, Tensor([1, 2])).tolist() == [2, 20, 1]
    picked = Tensor([[1.0, 2.0, 3.0]] * 2).sparse_categorical_crossentropy(places, reduction="none")
    np.testing.assert_allclose(picked.numpy(), np.log(np.exp([1, 2, 3]).sum()) - [3, 1], rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [True, 3, 2.5])
def test_numbers_beside_tensors(name, number):
    wanted = their_least_upper(getattr(theirs, name), theirs.from_py(number))
    wanted = getattr(theirs, STRONG.get(wanted.name, ""), wanted)
    got = Tensor.ones(2, dtype=name) * number
    assert getattr(theirs, got.dtype.name) == wanted
    assert (number * Tensor.ones(2, dtype=name)).dtype == got.dtype


@pytest.mark.parametrize("data, wanted", [
    (3, "int32"), (3.0, "float32"), (True, "bool"), ([1, 2], "int32"), ([True], "bool"), ([1, 2.5], "float32"),
    ([True, 2], "int32"), ([], "float32"), ([[1], [2.5]], "float32")])
def test_defaults(data, wanted):
    assert Tensor(data).dtype == dtypes.from_py(data) == getattr(dtypes, wanted) if data != [[1], [2.5]] else True
    assert Tensor(data).dtype == getattr(dtypes, wanted)


@pytest.mark.parametrize("call, wanted", [
    (lambda x: x / x, "float32"), (lambda x: x // 2, "int32"), (lambda x: x / 2, "float32"), (lambda x: x // 2.0, "float32"),
    (lambda x: x ** 2, "int32"), (lambda x: x ** 2.0, "float32"), (lambda x: 2 ** x, "int32"), (lambda x: x.exp(), "float32"),
    (lambda x: x.relu(), "int32"), (lambda x: x.sigmoid(), "float32"), (lambda x: x.maximum(1.5), "float32"),
    (lambda x: x < 2.5, "bool"), (lambda x: x.isnan(), "bool"), (lambda x: x.abs(), "int32"), (lambda x: x.clip(0, 1.5), "float32"),
    (lambda x: x.hardtanh(), "int32"), (lambda x: x.relu6(), "int32"), (lambda x: x.leaky_relu(), "float32"),
    (lambda x: (x < 2).where(1, 0), "int32"), (lambda x: (x < 2).where(1.5, 0), "float32"), (lambda x: -(x < 2), "bool"),
    (lambda x: (x < 2) * 2, "int32"), (lambda x: x.lerp(x, 0.5), "float32"), (lambda x: x.logaddexp(2), "float32"),
    (lambda x: x.half() / 2, "float16"), (lambda x: x.half() + 2.5, "float16"), (lambda x: x.half() + x, "float16")])
def test_operations_of_integers(call, wanted):
    assert call(Tensor([1, 2])).dtype == getattr(dtypes, wanted)


@pytest.mark.parametrize("name", [*NAMES, "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float",
                                  "double"])
def test_what_a_type_tells(name):
    ours, wanted = getattr(dtypes, name), getattr(theirs, name)
    assert to_dtype(name) == to_dtype(ours) == Tensor.ones(1, dtype=name).dtype == ours
    assert (ours.itemsize, ours.bitsize, ours.min, ours.max) == (wanted.itemsize, wanted.bitsize, wanted.min, wanted.max)
    for question in ["is_float", "is_int", "is_unsigned", "is_bool"]:
        assert getattr(dtypes, question)(ours) == getattr(theirs, question)(wanted)
    if dtypes.is_float(ours):
        assert dtypes.finfo(ours) == theirs.finfo(wanted)


def test_the_defaults_can_be_set():
    assert (dtypes.default_float, dtypes.default_int) == (dtypes.float32, dtypes.int32)
    with Context(DEFAULT_FLOAT="half", DEFAULT_INT="int64"):
        assert (dtypes.default_float, dtypes.default_int) == (dtypes.half, dtypes.int64)
        for made in (Tensor(1.5), Tensor([1.5, 2]), Tensor.rand(2), Tensor.randn(2), Tensor.ones(2), Tensor.zeros(2),
                     Tensor.eye(2), Tensor.linspace(0, 1, 3), Tensor.arange(0.5, 2), Tensor.uniform(2),
                     Tensor([1]).exp(), Tensor([1, 2]).mean(), Tensor([1]) / 2, Tensor([1]) + 0.5, Tensor([1]).sqrt()):
            assert made.dtype == dtypes.half
        for made in (Tensor(1), Tensor([1, 2]), Tensor.arange(3), Tensor.full((2,), 3)):
            assert made.dtype == dtypes.int64
        assert Tensor.randint(2, dtype="int32").dtype == dtypes.int32
        assert Tensor.ones(3).sum().item() == 3 and Tensor([1, 2]).mean().item() == 1.5
        assert nn.optim.SGD([Tensor.ones(2)]).lr.dtype == dtypes.float32
        dtypes.default_float = "bfloat16"
        assert Tensor.ones(2).dtype == dtypes.bfloat16
    assert Tensor.ones(2).dtype == dtypes.float32 and Tensor(1).dtype == dtypes.int32
    with pytest.raises(ValueError, match="int is no float"):
        dtypes.default_float = dtypes.int32
    with pytest.raises(ValueError, match="float is no integer"):
        dtypes.default_int = dtypes.float32
    with pytest.raises(AttributeError, match="dtypes.half cannot be changed"):
        dtypes.half = dtypes.float32


@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_prints_as_tinygrads(name):
    assert repr(getattr(dtypes, name)) == str(getattr(dtypes, name)) == repr(getattr(theirs, name))


def test_mistakes():
    with pytest.raises(AttributeError):
        to_dtype("float128")
    with pytest.raises(ValueError):
        dtypes.finfo(dtypes.int32)
    with pytest.raises(RuntimeError):
        dtypes.from_py("a")
    for wrong in ("float128", 3, 0, 2.0):  # not the dtype that is stored as 3
        with pytest.raises(TypeError):
            Tensor([1]).cast(wrong)
        with pytest.raises(TypeError):
            Tensor([1], dtype=wrong)


def test_an_unknown_name_is_told_and_a_repr_shows_a_known_one():
    x = Tensor.ones(2, dtype="bfloat16")
    assert "bfloat16" in repr(x)
    for name in ("bf16", "", "f32"):
        with pytest.raises(TypeError, match=f"dtype '{name}' is not known"):
            x.cast(name)
        with pytest.raises(TypeError, match=f"dtype '{name}' is not known"):
            Tensor.ones(2, dtype=name)
        with pytest.raises(TypeError, match=f"dtype '{name}' is not known"):
            Tensor([1, 2], dtype=name)
