"""outboard.repeat: many steps as one message, with the values of as many calls."""
import threading

import pytest

import outboard
from outboard import Tensor


def test_what_is_assigned_goes_from_step_to_step():
    x = Tensor([1.0, 2.0]).realize()

    def double():
        x.assign(x * 2)

    assert outboard.repeat(5, double) is None
    assert x.tolist() == [32.0, 64.0]


def test_what_a_step_returns_has_an_axis_more():
    x = Tensor([1.0]).realize()

    def step():
        x.assign(x + 1)
        return x.sum()

    assert outboard.repeat(3, step).tolist() == [2.0, 3.0, 4.0]
    both = outboard.repeat(2, lambda: (x * 1, x * 10))
    assert [t.tolist() for t in both] == [[[4.0], [4.0]], [[40.0], [40.0]]]


def test_a_part_that_is_assigned():
    x = Tensor.zeros(4).contiguous().realize()
    y = x[:2].realize()

    def step():
        y.assign(y + 1)
        return y.sum()

    assert outboard.repeat(4, step).tolist() == [2, 4, 6, 8]
    assert (x.tolist(), y.tolist()) == ([4, 4, 0, 0], [4, 4])


def test_items_of_what_was_not_realised_are_refused():
    x = Tensor([1.0, 2.0]) + 1

    def step():
        x[0] = x[0] + 1
        return x.sum()

    with pytest.raises(outboard.Error, match="not realised"):
        outboard.repeat(3, step)


def test_a_tensor_of_the_step_that_another_thread_ends():
    x = Tensor([1.0]).realize()

    def step():
        made = [x * 3]
        thread = threading.Thread(target=made.clear)
        thread.start()
        thread.join()
        x.assign(x + 1)

    outboard.repeat(3, step)
    assert x.tolist() == [4]


@pytest.mark.parametrize("result", [3, "text", {"x": 1}])
def test_a_step_returns_nothing_else(result):
    with pytest.raises(TypeError):
        outboard.repeat(2, lambda: result)


def test_what_a_step_raises_comes_through_and_nothing_has_happened():
    x = Tensor([1.0]).realize()

    def step():
        x.assign(x + 1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        outboard.repeat(3, step)
    assert x.tolist() == [1.0]
    with pytest.raises(outboard.Error):  # a value, which the first step alone would have
        outboard.repeat(3, lambda: (x + 1).item())
    with pytest.raises(ValueError):
        outboard.repeat(0, lambda: None)


def test_the_line_that_is_wrong():
    x = Tensor([1.0]).realize()
    kept = []

    def step():
        kept.append(x + 1)

    with pytest.raises(outboard.Error) as caught:
        outboard.repeat(3, step)
    assert caught.value.lineno == step.__code__.co_firstlineno + 1
