"""Data in, values out, and what a tensor says of itself."""
import copy
import pickle

import numpy as np
import pytest

from outboard import Device, Error, Tensor, dtypes, nn


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64,
                                   np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3)])
def test_numpy_there_and_back(dtype, shape):
    values = (np.arange(int(np.prod(shape))) - 2).astype(dtype).reshape(shape)
    back = Tensor(values).numpy()
    assert back.dtype == values.dtype and back.shape == values.shape
    np.testing.assert_array_equal(back, values)


def test_arrays_that_are_not_contiguous():
    values = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-1].T
    np.testing.assert_array_equal(Tensor(values).numpy(), values)


def test_large_arrays_go_by_hash_and_are_kept_until_they_are_sent():
    values = np.random.default_rng(0).random((1024, 1024), dtype=np.float32)
    tensor, expected = Tensor(values) + 1, values + 1
    del values
    np.testing.assert_array_equal(tensor.numpy(), expected)


def test_lists_numbers_and_bytes():
    assert Tensor(3).dtype == dtypes.int32 and Tensor(3).item() == 3
    assert Tensor(3.5).dtype == dtypes.float32 and Tensor(3.5).item() == 3.5
    assert Tensor(True).dtype == dtypes.bool and Tensor(True).item() is True
    assert Tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert Tensor([1, 2.5]).dtype == dtypes.float32
    assert Tensor([]).shape == (0,)
    assert Tensor(b"\1\2\3").tolist() == [1, 2, 3]
    assert Tensor([1, 2], dtype="float64").dtype == dtypes.float64


@pytest.mark.parametrize("data", [[[1, 2], [3]], [1, [2]], [[1], 2]])
def test_no_rectangle(data):
    with pytest.raises((ValueError, TypeError)):
        Tensor(data)


def test_errors_are_at_the_python_line():
    with pytest.raises(ValueError, match="tensor_test.py:") as raised:
        Tensor.ones(2, 3) + Tensor.ones(4)
    assert isinstance(raised.value, Error)
    assert raised.value.filename == __file__
    with open(__file__) as file:
        assert "Tensor.ones(4)" in file.readlines()[raised.value.lineno - 1]


def test_dlpack_both_ways():
    torch = pytest.importorskip("torch")
    values = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert Tensor(values).tolist() == values.tolist()
    assert torch.from_dlpack(Tensor(values) * 2).tolist() == (values * 2).tolist()
    assert np.from_dlpack(Tensor([1, 2])).tolist() == [1, 2]


def test_repr_never_computes():
    tensor = Tensor([1, 2]) + 1
    assert "not computed yet" in repr(tensor)
    assert "not computed yet" not in repr(tensor.realize())


def test_a_step():
    w = Tensor([[1.0, 2.0], [3.0, 4.0]])
    w.requires_grad_()
    (w * w).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [[2, 4], [6, 8]])
    w.assign(w - 0.5 * w.grad)
    np.testing.assert_array_equal(w.numpy(), np.zeros((2, 2)))


def test_movement_and_index():
    values = np.arange(24).reshape(2, 3, 4)
    x = Tensor(values)
    np.testing.assert_array_equal(x[1, ::-1, None, 1:3].numpy(), values[1, ::-1, None, 1:3])
    np.testing.assert_array_equal(x[..., Tensor([0, 3])].numpy(), values[..., [0, 3]])
    np.testing.assert_array_equal(x.permute(2, 0, 1).reshape(4, -1).numpy(), values.transpose(2, 0, 1).reshape(4, -1))
    assert x.shape == (2, 3, 4) and x.T.shape == (2, 4, 3)


@pytest.mark.parametrize("arguments, dtype, values", [
    ((0.0, 5.0), dtypes.float32, [0, 1, 2, 3, 4]),
    ((5.0,), dtypes.float32, [0, 1, 2, 3, 4]),
    ((0, 4, 2.0), dtypes.float32, [0, 2]),
    ((np.float32(2),), dtypes.float32, [0, 1]),
    ((np.int64(3),), dtypes.int32, [0, 1, 2]),
    ((5, 0, -2), dtypes.int32, [5, 3, 1]),
    ((2**31 - 2, 2**31), dtypes.int32, [2**31 - 2, 2**31 - 1]),
    ((2**31 - 1, 2**31 + 1), dtypes.int64, [2**31 - 1, 2**31]),
    ((-2**31, -2**31 - 2, -1), dtypes.int64, [-2**31, -2**31 - 1]),
    ((2**60, 2**60 + 3), dtypes.int64, [2**60, 2**60 + 1, 2**60 + 2]),
    ((2**40, 0), dtypes.int32, []),
])
def test_the_type_of_a_range(arguments, dtype, values):
    made = Tensor.arange(*arguments)
    assert made.dtype == dtype and made.tolist() == values


def test_ranges_that_cannot_be():
    assert Tensor.arange(2**60, 2**60 + 3, dtype="int64").tolist() == [2**60, 2**60 + 1, 2**60 + 2]
    for wrong in [(0.0, float("inf")), (float("nan"),), (0, 5, float("inf")), (0, 1e300)]:
        with pytest.raises(ValueError):
            Tensor.arange(*wrong)
    with pytest.raises(OverflowError):
        Tensor.arange(2**63, 2**63 + 3)
    for wrong in (Tensor([3]), "3"):
        with pytest.raises(TypeError):
            Tensor.arange(wrong)


def test_floats_as_integers_and_bools():
    assert Tensor([0.5, 0.0, float("nan"), 256], dtype="bool").tolist() == [True, False, True, True]
    floats = [1.9, -1.9, float("inf"), float("-inf"), float("nan"), 1e10]
    assert Tensor(floats, dtype="int32").tolist() == Tensor(floats).cast("int32").tolist()
    assert Tensor(np.float32([3, 4])).tolist() == Tensor([np.float32(3), np.float16(4)], dtype="int8").tolist()
    assert Tensor([np.float32("inf")], dtype="int64").item() == 2**63 - 1


def test_numbers_of_numpy_beside_a_tensor():
    x = Tensor([1.0, 2.0])
    for number in (np.float64(2), np.float32(2), np.float16(2), np.int64(2), np.uint8(2), np.array(2.0), np.array(2)):
        for result in (x * number, number * x):
            assert isinstance(result, Tensor) and result.dtype == dtypes.float32 and result.tolist() == [2, 4]
    assert (np.float32(3) - x).tolist() == [2, 1]
    for wrong in (np.ones(2), np.ones(1), np.ones((1, 1), int)):
        for call in (lambda: wrong * x, lambda: x * wrong):
            with pytest.raises(TypeError):
                call()


def test_an_int_beyond_64_bits():
    x = Tensor([1], dtype="uint64")
    for call in (lambda: x + (2**64 - 1), lambda: 2**64 - x, lambda: x == 2**70, lambda: x < np.uint64(2**63),
                 lambda: x.clip(0, 2**63), lambda: Tensor.full((2,), 2**64)):
        with pytest.raises(OverflowError):
            call()
    assert Tensor(2**64 - 1, dtype="uint64").item() == 2**64 - 1


def test_a_large_integer_is_exact():
    big = 2**53 + 1
    assert Tensor(big, dtype="int64").item() == big
    assert Tensor.full((2,), dtypes.int64.max, dtype=dtypes.int64).tolist() == [2**63 - 1] * 2
    assert Tensor([1, 2], dtype="int64").realize().assign(big).tolist() == [big, big]
    with pytest.raises(ValueError, match="300"):
        Tensor(300, dtype="uint8")
    with pytest.raises(ValueError):
        Tensor.full((-1,), 3)


def test_item_keeps_what_it_computed():
    from outboard import Session
    loss = (Tensor([1.0, 2.0]) * 3).sum()
    assert loss.item() == 9
    steps = Session.current().stats.steps
    assert loss.item() == 9 and Session.current().stats.steps == steps


@pytest.mark.parametrize("count", [1000, 1_000_000])
def test_an_array_may_change_once_its_tensor_is_realised(count):
    values = np.ones(count, dtype=np.float32)
    tensor = Tensor(values).realize()
    values[:] = 0
    assert tensor.sum().item() == count


def test_a_number_becomes_an_element_as_in_a_list():
    assert Tensor(2, dtype="bool").item() is True and Tensor(0.0, dtype="bool").item() is False
    assert Tensor.full((2,), -1.5, dtype="int32").tolist() == Tensor([-1.5, -1.5], dtype="int32").tolist() == [-1, -1]
    with pytest.raises(ValueError, match="300"):
        Tensor.full((2,), 300, dtype="uint8")


def test_patterns_of_bits_beside_integers():
    x = Tensor([1, -2], dtype="int32")
    assert (x | 0xFFFFFFFF).tolist() == [-1, -1] and (0xFFFF0000 & x).tolist() == [0, -65536]
    assert (x ^ 0x80000000).tolist() == [1 - 2**31, 2**31 - 2]
    assert (Tensor([3], dtype="int8") & 0xFE).item() == 2
    for wrong in (lambda: x | 2**32, lambda: x + 0xFFFFFFFF):
        with pytest.raises(ValueError, match="is no value of i32"):
            wrong()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "fp8e4m3", "float32", "float64"])
def test_pickles_and_copies(dtype):
    x = Tensor([[0, 1, 2], [3, 4, 1]], dtype=dtype)
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.deepcopy({"of": [x]})["of"][0]):
        assert made is not x and made.dtype == x.dtype and made.shape == (2, 3) and made.tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(Tensor.zeros(0, 3))).shape == (0, 3)
    assert pickle.loads(pickle.dumps(Tensor(3))).item() == 3


def test_a_copy_is_another_tensor():
    x = Tensor([1.0, 2.0]).realize()
    x.requires_grad_()
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.requires_grad and made.is_param
        made.assign(made + 1).realize()
        assert made.tolist() == [2, 3] and x.tolist() == [1, 2]
    assert not pickle.loads(pickle.dumps(Tensor([1]).is_param_(False))).is_param


def test_the_device_has_a_name():
    assert Tensor([1]).device == Device.DEFAULT == nn.optim.SGD([Tensor.ones(2)]).device


def test_shapes_by_name():
    x = Tensor.arange(6)
    assert x.reshape(shape=(2, 3)).tolist() == x.view(shape=(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.reshape(2, 3).permute(order=(1, 0)).shape == (3, 2) and x.reshape(6, 1).expand(shape=(6, 2)).shape == (6, 2)
    assert x.flip(axis=0).tolist() == [5, 4, 3, 2, 1, 0]
    assert Tensor.stack([x, x]).shape == Tensor.stack((x, x)).shape == x.stack(x).shape == (2, 6)
    assert Tensor.stack((x, x), dim=1).shape == (6, 2) and Tensor.zeros(2, buffer=False).tolist() == [0, 0]


def test_gradient_of_a_scalar_weighed_by_one_element():
    x = Tensor([1.0, 2.0]).realize()
    assert (x * x).sum().gradient(x, gradient=Tensor([3.0]))[0].tolist() == [6, 12]
    with pytest.raises(ValueError):
        (x * x).sum().gradient(x, gradient=Tensor([3.0, 1.0]))
