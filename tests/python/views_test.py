"""Views: what is written to one shows in the tensor that it is of, and the other way round, as in NumPy."""
import gc
import weakref

import numpy as np
import pytest

from outboard import Tensor, TinyJit

# Each makes a view of [4, 6], and works on NumPy's arrays as it is or as its second function.
VIEWS = {
    "a row": (lambda x: x[1],),
    "rows": (lambda x: x[1:3],),
    "every other column": (lambda x: x[:, ::2],),
    "backwards": (lambda x: x[::-1, 1:],),
    "a new axis": (lambda x: x[:, None],),
    "reshape": (lambda x: x.reshape(2, 12),),
    "view": (lambda x: x.view(8, 3), lambda x: x.reshape(8, 3)),
    "flatten": (lambda x: x.flatten(), lambda x: x.reshape(-1)),
    "unsqueeze": (lambda x: x.unsqueeze(0), lambda x: x[None]),
    "squeeze": (lambda x: x[1:2].squeeze(0), lambda x: x[1]),
    "unflatten": (lambda x: x.unflatten(1, (2, 3)), lambda x: x.reshape(4, 2, 3)),
    "T": (lambda x: x.T,),
    "transpose": (lambda x: x.transpose(0, 1), lambda x: x.T),
    "permute": (lambda x: x.reshape(2, 2, 6).permute(2, 0, 1), lambda x: x.reshape(2, 2, 6).transpose(2, 0, 1)),
    "flip": (lambda x: x.flip(1), lambda x: x[:, ::-1]),
    "shrink": (lambda x: x.shrink(((1, 3), None)), lambda x: x[1:3]),
    "shrink_to": (lambda x: x.shrink_to(2, 3), lambda x: x[:2, :3]),
    "split": (lambda x: x.split(2, dim=1)[1], lambda x: x[:, 2:4]),
    "chunk": (lambda x: x.chunk(2)[1], lambda x: x[2:]),
    "a view of a view": (lambda x: x.T.reshape(3, 8)[1, 2:], lambda x: x.T.reshape(3, 8)[1, 2:]),
    "expand to its own shape": (lambda x: x.expand(4, 6), lambda x: x[:]),
}


def both(name):
    ours, theirs = VIEWS[name][0], VIEWS[name][-1]
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = Tensor(values.copy()).realize()
    # NumPy copies where a reshape of a transposed array cannot be a view; this looks elements up by their number instead.
    return x, ours(x), values, theirs(values.astype(np.int64)), ours, theirs


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_a_view_is_written_to_the_whole(name, realized):
    x, view, values, places, _, _ = both(name)
    if realized:
        view.realize()
    fresh = np.arange(places.size, dtype=np.float32).reshape(places.shape) + 100
    view.assign(Tensor(fresh))
    wanted = values.copy()
    wanted.flat[places] = fresh
    np.testing.assert_array_equal(x.numpy(), wanted)
    np.testing.assert_array_equal(view.numpy(), fresh)
    view += 1
    wanted.flat[places] += 1
    np.testing.assert_array_equal(x.numpy(), wanted)
    if view.ndim:
        view[0] = 7
        wanted.flat[places[0]] = 7
        np.testing.assert_array_equal(view.numpy(), wanted.flat[places].reshape(places.shape))
        np.testing.assert_array_equal(x.numpy(), wanted)


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_the_whole_shows_in_a_view(name, realized):
    x, view, values, places, _, _ = both(name)
    before = view + 0
    if realized:
        view.realize()
        np.testing.assert_array_equal(view.numpy(), values.flat[places].reshape(places.shape))
    x[1:3, 1:5] = -1
    values = values.copy()
    old = values.flat[places].reshape(places.shape)
    values[1:3, 1:5] = -1
    now = values.flat[places].reshape(places.shape)
    np.testing.assert_array_equal((view * 2).numpy(), now * 2)
    np.testing.assert_array_equal(view.numpy(), now)
    np.testing.assert_array_equal(before.numpy(), old)
    x.assign(Tensor(values + 50))
    np.testing.assert_array_equal(view.tolist(), now + 50)


def test_two_views_see_each_other():
    x = Tensor([1.0, 2, 3, 4]).realize()
    square, tail = x.reshape(2, 2), x[2:]
    square[1, 0] = 9
    assert tail.tolist() == [9, 4] and x.tolist() == [1, 2, 9, 4]
    tail.assign([5.0, 6.0])
    assert square.tolist() == [[1, 2], [5, 6]]
    x[2:] += 1
    assert square.tolist() == [[1, 2], [6, 7]] and tail.tolist() == [6, 7]


def test_copies_stay():
    x = Tensor([1.0, 2, 3, 4]).realize()
    for copy in (x[1:3].contiguous(), x[1:3].clone(), x.reshape(2, 2) + 0, x[[1, 2]]):
        old = copy.tolist()
        x[1] += 10
        assert copy.tolist() == old
        copy.assign(copy * 0)
        assert x.tolist()[1] != 0


def test_a_write_to_an_expanded_tensor_is_refused():
    x = Tensor([1.0]).realize()
    wide = x.expand(3)
    with pytest.raises(RuntimeError, match="expanded"):
        wide[0] = 5
    x.assign([2.0])
    assert wide.tolist() == [2, 2, 2]
    copy = x.expand(3).contiguous()
    copy[0] = 5
    assert copy.tolist() == [5, 2, 2] and x.tolist() == [2]


def test_a_value_that_is_replaced_leaves_its_views():
    x = Tensor([1.0, 2.0]).realize()
    view = x.reshape(2, 1)
    x.replace(Tensor([7.0, 8.0]))
    assert x.tolist() == [7, 8] and view.tolist() == [[1], [2]]


def test_a_view_that_is_read_in_a_captured_step_follows_it():
    cache = Tensor.zeros(4, 2).contiguous().realize()
    rows = cache.reshape(2, 4)

    @TinyJit
    def step(x):
        cache.assign(cache + x).realize()
        return (cache * 1).realize()

    for i in range(5):
        step(Tensor.full((4, 2), 1.0).contiguous().realize())
        assert rows.tolist() == [[i + 1.0] * 4] * 2


def test_a_view_keeps_no_whole_that_nobody_has():
    x = Tensor(np.ones((64, 64), np.float32)).realize()
    flat = x.flatten()
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    flat.realize()
    flat[0] = 3
    assert flat.numpy()[:2].tolist() == [3, 1]


def test_gradients_go_through_views():
    w = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    view = w.reshape(2, 2)
    (view * view).sum().backward()
    assert w.grad.tolist() == [2, 4, 6, 8]
