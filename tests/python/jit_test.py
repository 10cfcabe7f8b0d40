"""TinyJit: the results of the function called each time, without calling it; and what it refuses."""
import copy
import pickle
import threading

import numpy as np
import pytest

from outboard import Context, Tensor, TinyJit, Variable
from outboard.jit import JitError
from outboard.nn import optim


def test_two_calls_then_none():
    calls = []

    @TinyJit
    def double(x):
        calls.append(1)
        return (x * 2).realize()

    results = [double(Tensor([float(i), 1.0])) for i in range(5)]
    assert len(calls) == 2 and double.captured and double.cnt == 5
    assert repr(double) == "<TinyJit test_two_calls_then_none.<locals>.double, captured>"
    assert [result.tolist() for result in results] == [[2.0 * i, 2.0] for i in range(5)]
    double.reset()
    assert double(Tensor([7.0])).tolist() == [14] and len(calls) == 3


def test_results_in_tuples_lists_and_dicts():
    step = TinyJit(lambda x, *, y: {"sum": x + y, "both": [x * 1, (y * 1, None)]})
    for i in range(4):
        result = step(Tensor([float(i)]), y=Tensor([1.0]))
        assert result["sum"].tolist() == [i + 1.0] and result["both"][0].tolist() == [i]
        assert result["both"][1][0].tolist() == [1] and result["both"][1][1] is None


def test_lists_and_dicts_of_arguments():
    step = TinyJit(lambda xs, d: xs[0] + xs[1] * d["z"])
    for i in range(4):
        assert step([Tensor([float(i)]), Tensor([2.0])], {"z": Tensor([i + 3.0])}).tolist() == [i + 2 * (i + 3.0)]


def test_methods_have_a_recording_for_each_object():
    class Counter:
        def __init__(self):
            self.n = Tensor([0.0]).contiguous().realize()

        @TinyJit
        def add(self, by):
            return self.n.assign(self.n + by).realize()

    counter, other = Counter(), Counter()
    for i in range(1, 5):
        assert counter.add(Tensor([2.0])).tolist() == [2.0 * i]
        assert other.add(Tensor([3.0])).tolist() == [3.0 * i]
    assert counter.n.tolist() == [8] and other.n.tolist() == [12]


def test_a_step_that_only_assigns():
    kept = Tensor([0.0, 0.0]).realize()

    @TinyJit
    def keep(a):
        kept.assign(a).realize()

    for i in range(5):
        given = Tensor([float(i), 1.0]).realize()
        keep(given)
        assert kept.tolist() == given.tolist() == [i, 1.0]
    given.assign(Tensor([9.0, 9.0])).realize()
    assert kept.tolist() == [4.0, 1.0]


def test_assigning_one_argument_to_another_and_a_tensor_of_outside():
    source, kept = Tensor([0.0]).realize(), Tensor([0.0]).realize()

    @TinyJit
    def move(a, b):
        before = kept * 10
        b.assign(a)
        kept.assign(source)
        return (before + a).realize()

    for i in range(5):
        a, b = Tensor([float(i)]).realize(), Tensor([-1.0]).realize()
        source.assign(Tensor([i + 0.5])).realize()
        was = kept.item()
        assert move(a, b).tolist() == [was * 10 + i]
        assert b.tolist() == [i] and kept.tolist() == [i + 0.5]


def test_numbers_that_change_are_refused():
    scale = TinyJit(lambda x, factor, *, name=None: x * factor)
    for _ in range(3):
        assert scale(Tensor([2.0]), 3).tolist() == [6]
    with pytest.raises(JitError, match="argument 1 is 4, and was 3"):
        scale(Tensor([2.0]), 4)
    with pytest.raises(JitError, match="argument 'name'"):
        scale(Tensor([2.0]), 3, name="other")
    assert scale(Tensor([5.0]), 3).tolist() == [15]


def test_variables():
    @TinyJit
    def total(x, n):
        return x.shrink(((0, n),)).sum()

    x, n = Tensor.arange(10).contiguous().realize(), Variable("n", 1, 10)
    for k in (3, 7, 1, 10):
        assert total(x, n.bind(k)).item() == k * (k - 1) // 2
    with pytest.raises(JitError):
        total(x, Variable("m", 1, 10).bind(1))


@pytest.mark.skipif(not hasattr(Tensor, "dropout"), reason="there are no random tensors yet")
def test_random_numbers_go_on():
    def values(function):
        Tensor.manual_seed(3)
        return [function(Tensor([1.0])).tolist() for _ in range(4)]

    plain = lambda x: (x + Tensor.rand(4)).realize()
    assert values(TinyJit(plain)) == values(plain)


def train(jit):
    random = np.random.default_rng(0)
    Tensor.manual_seed(1)
    w, b = (Tensor(random.standard_normal(shape).astype(np.float32)) for shape in ((4, 3), (3,)))
    adam = optim.Adam([w, b], lr=0.05)

    def step(x, y):
        adam.zero_grad()
        loss = ((x @ w + b).tanh().dropout(0.2) - y).square().mean().backward()
        return loss.realize(*adam.schedule_step())

    step = TinyJit(step) if jit else step
    losses = []
    with Context(TRAINING=1):
        for i in range(6):
            if i == 4:
                adam.lr.assign(Tensor([0.5]))
            x, y = (Tensor(random.standard_normal(shape).astype(np.float32)) for shape in ((8, 4), (8, 3)))
            losses.append(step(x, y).item())
    return losses, w.tolist(), b.tolist()


@pytest.mark.skipif(not hasattr(Tensor, "dropout"), reason="there are no random tensors yet")
def test_a_training_has_the_same_bits():
    assert train(True) == train(False)


def call(step, *arguments, times=3):
    for _ in range(times):
        step(*(make() for make in arguments))


def test_what_is_refused():
    x = lambda: Tensor([1.0, 2.0])
    with pytest.raises(JitError, match="asked for"):
        call(TinyJit(lambda x: Tensor(x.numpy() + 1).realize()), x)
    with pytest.raises(JitError, match="non-Tensor value of type int"):
        call(TinyJit(lambda x: (x + 1, 3)), x)
    with pytest.raises(JitError, match="nothing"):
        call(TinyJit(lambda x: None), x)
    step = TinyJit(lambda x: x + 1)
    call(step, x)
    with pytest.raises(JitError, match=r"f32\[3\].*f32\[2\]"):
        step(Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(JitError, match="mismatch"):
        step(x=x())
    two = TinyJit(lambda x, y: x + y)
    with pytest.raises(JitError, match="duplicate"):
        same = x()
        call(two, lambda: same, lambda: same)
    with pytest.raises(JitError):
        call(TinyJit(lambda x: step(x)), x)


def test_a_tensor_that_is_replaced_and_not_assigned():
    kept = {"h": Tensor([1.0])}

    @TinyJit
    def step(x):
        kept["h"] = (kept["h"] + x).realize()
        return kept["h"] * 2

    with pytest.raises(JitError, match="assign"):
        call(step, lambda: Tensor([1.0]))


def test_a_tensor_of_the_step_that_another_thread_ends():
    def step(x):
        made = [x * i for i in range(100)]
        thread = threading.Thread(target=made.clear)
        thread.start()
        thread.join()
        return x + 1

    step = TinyJit(step)
    assert [step(Tensor([float(i)])).tolist() for i in range(4)] == [[1], [2], [3], [4]]


def test_a_part_that_is_assigned():
    x = Tensor.zeros(4).contiguous().realize()
    y = x[:2].realize()

    @TinyJit
    def step():
        y.assign(y + 1)
        return y.sum()

    assert [step().item() for _ in range(5)] == [2, 4, 6, 8, 10]
    assert (x.tolist(), y.tolist()) == ([5, 5, 0, 0], [5, 5])


def test_a_tensor_that_has_another_dtype_later():
    weights = Tensor([1.0, 2.0]).realize()
    step = TinyJit(lambda x: x * weights)
    call(step, lambda: Tensor([1.0, 2.0]))
    weights.replace(Tensor([3, 4]))
    with pytest.raises(JitError, match=r"i32\[2\], recorded with f32\[2\]"):
        step(Tensor([1.0, 2.0]))


def test_errors_of_the_function_are_its_own():
    step = TinyJit(lambda x: x + Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError):
        step(Tensor([1.0, 2.0]))
    with pytest.raises(ZeroDivisionError):
        call(TinyJit(lambda x: 1 // 0), lambda: Tensor([1.0]))
    assert Tensor([1.0]).tolist() == [1]


def test_prune_is_accepted():
    step = TinyJit(prune=True)(lambda x: x + 1)
    call(step, lambda: Tensor([1.0]))
    assert step.captured


def test_arguments_are_told_apart_within_lists_and_dicts():
    step = TinyJit(lambda d: d["x"] - d["y"])
    for _ in range(3):
        assert step({"x": Tensor([5.0]), "y": Tensor([2.0])}).tolist() == [3]
    assert step({"y": Tensor([2.0]), "x": Tensor([5.0])}).tolist() == [3]


def test_tensors_of_numbers_made_inside():
    step = TinyJit(lambda x: (x * Tensor([1.0, 2.0]) + Tensor([3.0, 4.0])).realize())
    for i in range(5):
        assert step(Tensor([i, i + 1.0])).tolist() == [i + 3, 2 * (i + 1) + 4]


def test_a_gradient_made_inside():
    weight = Tensor([1.0, 2.0]).realize().requires_grad_()

    @TinyJit
    def step(x):
        weight.grad = None
        (weight * weight * x).sum().backward()
        return weight.grad.realize()

    for i in range(5):
        assert step(Tensor([float(i), 1.0])).tolist() == [2 * i, 4]


def test_what_is_kept_unrealised_is_not_used_later():
    kept = {}

    @TinyJit
    def step(x):
        kept["h"] = x * 2
        return (x + 1).realize()

    for i in range(5):
        assert step(Tensor([float(i)])).item() == i + 1
    with pytest.raises(RuntimeError, match="captured step made and did not realise"):
        kept["h"].tolist()


def add_one(x):
    return (x + 1).realize()


@TinyJit
def add_two(x):
    return (x + 2).realize()


def test_copies_record_anew():
    step = TinyJit(add_one)
    call(step, lambda: Tensor([1.0]))
    for other in (copy.deepcopy(step), pickle.loads(pickle.dumps(step))):
        assert step.captured and not other.captured
        for i in range(4):
            assert other(Tensor([float(i), 0])).tolist() == [i + 1, 1]
    assert pickle.loads(pickle.dumps(add_two)) is add_two and copy.deepcopy(add_two) is add_two
