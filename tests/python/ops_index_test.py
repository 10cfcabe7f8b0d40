"""Indexing in all of Python's forms, reading and writing, against PyTorch and NumPy."""
import numpy as np
import pytest
import torch

from ops import Case
from outboard import Error, Tensor, dtypes


def places(*values, dtype=np.int32):
    return np.array(values, dtype=dtype)


# Each index is written once and given to both sides.
BASIC = {
    "an int": np.s_[1],
    "a negative int": np.s_[-1],
    "two ints": np.s_[1, -2],
    "a slice": np.s_[1:3],
    "a slice to the end": np.s_[1:],
    "a slice from the end": np.s_[-2:],
    "a slice beyond the end": np.s_[1:100],
    "an empty slice": np.s_[2:1],
    "a step": np.s_[::2],
    "a step from 1": np.s_[1::2],
    "a step on the second axis": np.s_[:, ::3],
    "two steps": np.s_[::2, 1:4:2],
    "None": np.s_[None],
    "None between": np.s_[:, None],
    "None at the end": np.s_[..., None],
    "two Nones": np.s_[None, :, None],
    "an ellipsis": np.s_[...],
    "an ellipsis and an int": np.s_[..., 1],
    "an int, an ellipsis, an int": np.s_[0, ..., 1],
    "an int and a slice": np.s_[1, 1:3],
    "a slice and an int": np.s_[1:, 2],
    "an int, None and a slice": np.s_[1, None, 1:3],
    "an empty tuple": np.s_[()],
}
# PyTorch has no negative steps: flip spells them.
BACK = {
    "back": (np.s_[::-1], lambda x: x.flip(0)),
    "back by 2": (np.s_[::-2], lambda x: x.flip(0)[::2]),
    "back on the second axis": (np.s_[:, ::-1], lambda x: x.flip(1)),
    "back from 3 to 0": (np.s_[:, 3:0:-1], lambda x: x[:, 1:4].flip(1)),
    "back from 4 by 3": (np.s_[:, 4::-3], lambda x: x[:, 1:5].flip(1)[:, ::3]),
    "back to nowhere": (np.s_[0:2:-1], lambda x: x[0:0]),
    "back on both": (np.s_[::-1, ::-1], lambda x: x.flip((0, 1))),
}
ADVANCED = {
    "a list": np.s_[[2, 0, 2]],
    "a list with negatives": np.s_[[-1, 0]],
    "a list after a slice": np.s_[:, [3, 1]],
    "a list after a step": np.s_[::2, [3, 1]],
    "two lists": np.s_[[0, 2, 1], [1, 1, 4]],
    "two lists and a slice": np.s_[[0, 2], [1, 4], 1:],
    "lists apart": np.s_[[0, 2], :, [1, 2]],
    "a list and an int": np.s_[[0, 2], 1],
    "a list and None": np.s_[[0, 2], None],
    "an ellipsis and a list": np.s_[..., [2, 0]],
    "a nested list": np.s_[([[0, 1], [2, 0]],)],
    "nested lists that broadcast": np.s_[[[0], [2]], [1, 3]],
    "a list in the middle": np.s_[1:, [4, 0], ::2],
    "a list of one": np.s_[:, :, [1]],
}


def both(index):
    return lambda x: x[index]


READS = [Case(f"x[{name}]", [(3, 5, 3)], both(index)) for name, index in {**BASIC, **ADVANCED}.items()]
READS += [Case(f"x[{name}]", [(4, 6)], both(index), theirs) for name, (index, theirs) in BACK.items()]
READS += [
    Case("x[tensor]", [(4, 3), places(3, 0, 3)], lambda x, i: x[i], lambda x, i: x[i.long()]),
    Case("x[tensor of i64]", [(4, 3), places(3, 0, 3, dtype=np.int64)], lambda x, i: x[i]),
    Case("x[tensor of u8]", [(4, 3), places(3, 0, 3, dtype=np.uint8)], lambda x, i: x[i], lambda x, i: x[i.long()]),
    Case("x[tensor with negatives]", [(4, 3), places(-1, -4)], lambda x, i: x[i], lambda x, i: x[i.long()]),
    Case("x[matrix]", [(4, 3), places([3, 0], [1, 1])], lambda x, i: x[i], lambda x, i: x[i.long()]),
    Case("x[:, matrix]", [(2, 4, 3), places([3, 0], [1, 1])], lambda x, i: x[:, i], lambda x, i: x[:, i.long()]),
    Case("x[scalar tensor]", [(4, 3), np.array(2, dtype=np.int32)], lambda x, i: x[i], lambda x, i: x[i.long()]),
    Case("x[tensor, tensor]", [(4, 3), places(3, 0), places(2, 1)], lambda x, i, j: x[i, j],
         lambda x, i, j: x[i.long(), j.long()]),
    Case("x[tensor, :, tensor]", [(4, 2, 3), places(3, 0), places(2, 1)], lambda x, i, j: x[i, :, j],
         lambda x, i, j: x[i.long(), :, j.long()]),
    Case("x[column, row]", [(4, 3), places([3], [0]), places(2, 1, 0)], lambda x, i, j: x[i, j],
         lambda x, i, j: x[i.long(), j.long()]),
    Case("x[mask]", [(3, 4)], lambda x: x[x > 0]),
    Case("x[mask of rows]", [(4, 3), np.array([True, False, True, True])], lambda x, m: x[m]),
    Case("x[mask of no rows]", [(4, 3), np.zeros(4, dtype=bool)], lambda x, m: x[m]),
    Case("x[:, mask]", [(2, 4), np.array([True, False, True, True])], lambda x, m: x[:, m]),
    Case("x[..., mask]", [(2, 3, 4), np.array([True, False, True, True])], lambda x, m: x[..., m]),
    Case("x[mask of two axes]", [(2, 3, 4), np.array([[True, False, True], [False, False, True]])],
         lambda x, m: x[m]),
    Case("x[mask, 1:]", [(3, 4), np.array([True, False, True])], lambda x, m: x[m, 1:]),
    Case("x[mask, int]", [(3, 4), np.array([True, False, True])], lambda x, m: x[m, 2]),
    Case("x[list of bool]", [(3, 4)], lambda x: x[[True, False, True]]),
    Case("x[array]", [(4, 3)], lambda x: x[np.array([2, 0])]),
    Case("x[1][2]", [(4, 3)], lambda x: x[1][2]),
    Case("a sum of parts", [(4, 3)], lambda x: x[1:] * x[:-1] + x[0]),
    Case("of ints", [np.arange(12, dtype=np.int32).reshape(3, 4)], lambda x: x[1:, ::2]),
    Case("of bool", [np.arange(12).reshape(3, 4) % 3 == 0], lambda x: x[[2, 0], 1:]),
]


@pytest.mark.parametrize("case", READS, ids=str)
def test_read(case):
    case.check()


# ---- writing ---------------------------------------------------------------------------------------------------------

WRITES = {
    "an int": (np.s_[1], ()),
    "an int, a row": (np.s_[1], (5, 3)),
    "an int, what broadcasts": (np.s_[-1], (3,)),
    "two ints": (np.s_[1, -2], (3,)),
    "a slice": (np.s_[1:3], ()),
    "a slice, a tensor": (np.s_[1:3], (2, 5, 3)),
    "a slice, what broadcasts": (np.s_[1:3], (1, 5, 1)),
    "a step": (np.s_[::2], (2, 5, 3)),
    "a step on the second axis": (np.s_[:, 1::3], (3, 2, 3)),
    "two steps": (np.s_[::2, 1:4:2], (2, 2, 3)),
    "None": (np.s_[None, 1], (1, 5, 3)),
    "an ellipsis": (np.s_[...], ()),
    "an ellipsis, a tensor": (np.s_[...], (3, 5, 3)),
    "an ellipsis and an int": (np.s_[..., 1], (3, 5)),
    "all": (np.s_[:], (5, 3)),
    "an empty slice": (np.s_[2:1], ()),
    "a list": (np.s_[[2, 0]], (2, 5, 3)),
    "a list, a number": (np.s_[[1, -1]], ()),
    "a list after a slice": (np.s_[:, [3, 1]], (3, 2, 3)),
    "a list after a step": (np.s_[::2, [3, 1]], (2, 2, 3)),
    "two lists": (np.s_[[0, 2, 1], [1, 1, 4]], (3, 3)),
    "lists apart": (np.s_[[0, 2], :, [1, 2]], (2, 5)),
    "a list and an int": (np.s_[[0, 2], 1], (2, 3)),
    "an ellipsis and a list": (np.s_[..., [2, 0]], (3, 5, 2)),
    "nested lists": (np.s_[[[0], [2]], [1, 3]], (2, 2, 3)),
    "a list and steps back": (np.s_[1:, [4, 0], 0:2], (2, 2, 2)),
}


def written(x, index, value):
    y = x * 1  # no leaf
    y[index] = value
    return y + x


WRITE_CASES = [Case(f"x[{name}] = ...", [(3, 5, 3), shape], lambda x, v, index=index: written(x, index, v))
               for name, (index, shape) in WRITES.items()]
WRITE_CASES += [
    Case("x[mask] = number", [(3, 4)], lambda x: written(x, x > 0, 7.0)),
    Case("x[mask] = scalar tensor", [(3, 4), ()], lambda x, v: written(x, x > 0, v)),
    Case("x[mask of rows] = rows", [(4, 3), np.array([True, False, True, False]), (2, 3)],
         lambda x, m, v: written(x, m, v)),
    Case("x[:, mask] = number", [(2, 4), np.array([True, False, True, True])],
         lambda x, m: written(x, (slice(None), m), -1.0)),
    Case("x[tensor] = rows", [(4, 3), places(3, 0, dtype=np.int64), (2, 3)], lambda x, i, v: written(x, i, v)),
    Case("twice", [(4, 3), (3,)], lambda x, v: written(written(x, 1, v), np.s_[1:3], 2.0)),
]


@pytest.mark.parametrize("case", WRITE_CASES, ids=str)
def test_write(case):
    case.check()


# The same statement on a Tensor and on a NumPy array, of a tensor that has its values already.
STATEMENTS = [
    "x[1] = 5", "x[1] = 2.75", "x[-1, 2] = 7", "x[1:3] += 2", "x[1:3] *= 3", "x[::-1] = v", "x[:, ::-2] = 4",
    "x[[0, 2]] = 1", "x[[0, 2]] += 1", "x[1, [0, 3]] = [8, 9]", "x[1] = [1, 2, 3, 4]", "x[...] = 0", "x[:] = v",
    "x[x > 5] = 0", "x[x > 5] += 1", "x[:, 1] = v[:, 2]", "x[0] = x[1]", "x[1:] = x[:-1]", "x[None, 1] = 3",
    "x[1][2] = 9", "x[1:][0] = 6", "x[1:][:, 2][0] -= 1",
    "y = x[1]; y[0] = 5", "y = x[1:3]; y += 1", "y = x[1:3]; y[...] = 0; x[2] = 4", "x[0], x[1] = 8, 9",
]


@pytest.mark.parametrize("dtype", [np.float32, np.int32], ids=["f32", "i32"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_statement(statement, dtype):
    array, v = np.arange(12, dtype=dtype).reshape(3, 4), np.arange(20, 32, dtype=dtype).reshape(3, 4)
    tensor = Tensor(array.copy()).realize()
    exec(statement, {"x": tensor, "v": Tensor(v.copy())})
    exec(statement, {"x": array, "v": v})
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert tensor.numpy().dtype == dtype


def test_the_last_of_several_values_stays():
    x = Tensor.zeros(3)
    x[[1, 1, 1]] = Tensor([4.0, 5.0, 6.0])
    assert x.tolist() == [0, 6, 0]


def test_elements_out_of_range():
    x = Tensor([1.0, 2.0, 3.0])
    assert x[Tensor([3, 2, -4])].tolist() == [0, 3, 0]
    x[Tensor([3, 0])] = Tensor([8.0, 9.0])
    assert x.tolist() == [9, 2, 3]


def test_what_was_computed_before_stays():
    x = Tensor([1.0, 2.0, 3.0]).realize()
    y = x + 1
    x[0] = 10
    assert y.tolist() == [2, 3, 4]
    assert x.tolist() == [10, 2, 3]


def test_assign_to_a_part():
    cache = Tensor.zeros(2, 4, 3).contiguous().realize()
    cache[:, 1:3].assign(Tensor.ones(2, 2, 3)).realize()
    assert cache.numpy().sum(axis=(0, 2)).tolist() == [0, 6, 6, 0]


def test_what_replaces_a_part_is_no_part():
    x = Tensor.zeros(4).contiguous().realize()
    y = x[:2]
    y.replace(Tensor([7.0, 8.0]))
    y.assign(Tensor([1.0, 2.0]))
    assert (x.tolist(), y.tolist()) == ([0, 0, 0, 0], [1, 2])


@pytest.mark.parametrize("index", [np.s_[1], Tensor([False, True])], ids=["place", "mask"])
def test_integers_stay_exact_beside_a_float(index):
    x = Tensor([16777217, 5])
    x[index] = 16777219.0
    assert x.tolist() == [16777217, 16777219]
    x[index] = 1.5
    assert x.tolist() == [16777217, 1]
    flags = Tensor([True, False])
    flags[index] = 0.5
    assert flags.tolist() == [True, True]


def test_a_part_of_what_is_only_computed_is_its_own():
    x = Tensor([1.0, 2.0]) + 1
    y = x[0:1]
    y[0] = 9
    assert (x.tolist(), y.tolist()) == ([2, 3], [9])


def test_iteration():
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("index", [3, -4, (0, 2), (0, 0, 0), (..., 5), (1.5,), "a", ([0.5],), [], (slice(None), 7)],
                         ids=str)
def test_index_errors(index):
    x = Tensor.zeros(3, 2)
    with pytest.raises(IndexError):
        x[index]
    with pytest.raises(IndexError):
        x[index] = 1


@pytest.mark.parametrize("wrong", [
    lambda x: x[Tensor([0.5])], lambda x: x[Tensor([True, False])], lambda x: x[Tensor([True] * 3), Tensor([True] * 2)],
    lambda x: x[True],
])
def test_index_errors_of_tensors(wrong):
    with pytest.raises(IndexError):
        wrong(Tensor.zeros(3, 2))


def test_errors_of_values():
    x = Tensor.zeros(3, 2)
    with pytest.raises(RuntimeError, match="i32.*f32"):
        x[0] = Tensor([1, 2])
    with pytest.raises(ValueError):
        x[0] = Tensor([1.0, 2.0, 3.0])
    with pytest.raises(ValueError):
        x[::0]
    with pytest.raises(TypeError):
        x[0.5:]
    with pytest.raises(TypeError):
        del x[0]
    with pytest.raises(Error) as error:
        x[7]
    assert error.value.filename.endswith("ops_index_test.py")


def test_one_hot():
    x = Tensor([0, 2, 1])
    assert x.one_hot(4).tolist() == np.eye(4, dtype=int)[[0, 2, 1]].tolist()
    assert x.one_hot().shape == (3, 3)
    assert x.one_hot(3).dtype == dtypes.int32
    with pytest.raises(ValueError):
        Tensor([0.5]).one_hot(2)


GATHER = [
    Case("gather", [(3, 4), np.array([[0, 3], [1, 1]], dtype=np.int64)], lambda x, i: x.gather(1, i)),
    Case("gather along 0", [(3, 4), np.array([[0, 2, 1, 1]], dtype=np.int64)], lambda x, i: x.gather(0, i)),
    Case("gather along -1", [(2, 3, 4), np.zeros((2, 3, 1), dtype=np.int64)], lambda x, i: x.gather(-1, i)),
    Case("gather more than there are", [(2, 2), np.array([[0, 1, 1, 0, 1]], dtype=np.int64)],
         lambda x, i: x.gather(1, i)),
]


@pytest.mark.parametrize("case", GATHER, ids=str)
def test_gather(case):
    case.check()
