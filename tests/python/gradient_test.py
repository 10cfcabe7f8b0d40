"""backward() and gradient(): as tinygrad has them, with PyTorch's numbers."""
import numpy as np
import pytest
import torch

from outboard import Context, Tensor
from outboard.nn import optim


def test_backward_fills_the_gradient_of_everything_that_is_alive():
    w, unused = Tensor([1.0, 2.0, 3.0]), Tensor([1.0])
    square = w * w
    y = (square * 2).sum()
    assert w.grad is None
    assert y.backward() is y
    assert w.grad.tolist() == [4, 8, 12] and square.grad.tolist() == [2, 2, 2] and y.grad.item() == 1
    assert unused.grad is None
    (w * 3).sum().backward()
    assert w.grad.tolist() == [7, 11, 15]
    (w * 2).backward(gradient=Tensor([1.0, 1.0, 5.0]))
    assert w.grad.tolist() == [9, 13, 25]
    w.grad = None
    assert w.grad is None


def test_detached_tensors_get_zeros():
    w = Tensor([1.0, 2.0])
    detached = w.detach()
    (detached * 2).sum().backward()
    assert w.grad.tolist() == [0, 0] and detached.grad.tolist() == [2, 2]


def test_the_errors_are_tinygrads():
    w = Tensor([1.0, 2.0])
    with pytest.raises(AssertionError):
        (w * 2).backward()
    with pytest.raises(RuntimeError):
        Tensor([1, 2]).sum().backward()
    with pytest.raises(RuntimeError):
        w.sum().gradient(Tensor([1, 2]))
    with pytest.raises(RuntimeError):
        w.assign(Tensor([1, 2]))
    with pytest.raises(ValueError):
        w.replace(Tensor([1.0]))


def test_gradients_of_any_order():
    x = Tensor([2.0, 3.0])
    y = (x * x * x).sum()
    (first,) = y.gradient(x)
    (second,) = first.sum().gradient(x)
    (third,) = second.sum().gradient(x)
    assert first.tolist() == [12, 27] and second.tolist() == [12, 18] and third.tolist() == [6, 6]
    of_x, of_y = y.gradient(x, Tensor([5.0]))
    assert of_y.tolist() == [0] and of_x.tolist() == [12, 27]
    assert (x * 2).gradient(x, gradient=Tensor([1.0, 7.0]))[0].tolist() == [2, 14]


def test_a_hessian_by_rows_is_that_of_torch():
    values = np.random.default_rng(1).standard_normal((3,)).astype(np.float32)
    matrix = np.random.default_rng(2).standard_normal((3, 3)).astype(np.float32)
    x = Tensor(values)
    (first,) = ((x.reshape(1, 3) @ Tensor(matrix)).sigmoid() * x.exp()).sum().gradient(x)
    rows = [first[i].gradient(x)[0].tolist() for i in range(3)]
    function = lambda x: ((x.reshape(1, 3) @ torch.tensor(matrix)).sigmoid() * x.exp()).sum()
    expected = torch.autograd.functional.hessian(function, torch.tensor(values))
    np.testing.assert_allclose(rows, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_assign_replace_and_clone():
    a = Tensor([1.0, 2.0])
    before, copy = a * 10, a.clone()
    assert a.assign(Tensor([3.0])) is a and a.tolist() == [3, 3]
    assert before.tolist() == [10, 20] and copy.tolist() == [1, 2]
    assert a.assign([5.0, 6.0]).tolist() == [5, 6] and a.assign(7).tolist() == [7, 7]
    b = Tensor([8.0, 9.0]) + 1
    assert a.replace(b) is a and a.tolist() == [9, 10]
    assert a.is_param and not a.is_param_(False).is_param and not a.clone().is_param


def test_requires_grad_and_is_param_agree():
    assert Tensor([1.0]).requires_grad and not Tensor([1.0], requires_grad=False).is_param
    shared = Tensor([1.0])
    frozen = Tensor(shared, requires_grad=False)
    assert shared.is_param and not frozen.is_param and frozen.tolist() == [1]
    weight = Tensor([1.0], requires_grad=True)
    weight.requires_grad = False
    assert not weight.is_param and not weight.clone().is_param
    weight.requires_grad = None
    assert weight.is_param
    for call in (lambda: Tensor([1], requires_grad=True), lambda: Tensor([1]).requires_grad_()):
        with pytest.raises(ValueError):
            call()
    counts = Tensor([1], requires_grad=False)
    with pytest.raises(ValueError):
        counts.requires_grad = True
    assert not counts.requires_grad


def test_a_step_uses_gradients_up():
    w = Tensor([1.0, 2.0])
    sgd = optim.SGD([w], lr=0.5)
    with Context(TRAINING=1):
        (w * w).sum().backward()
        sgd.step()
        assert w.tolist() == [0, 0]
        with pytest.raises(RuntimeError, match="used up"):
            w.grad
        with pytest.raises(RuntimeError, match="zero_grad"):
            (w * w).sum().backward()
            sgd.step()
        sgd.zero_grad()
        assert w.grad is None
        (w + 1).sum().backward()
        sgd.step()
    assert w.tolist() == [-0.5, -0.5]


def test_a_gradient_that_is_kept_stays():
    w = Tensor([1.0, 2.0])
    sgd = optim.SGD([w], lr=0.5)
    with Context(TRAINING=1):
        (w * w).sum().backward()
        kept = w.grad
        sgd.step()
    assert kept.tolist() == [2, 4]


def test_gradients_add_up_over_small_batches():
    w = Tensor([1.0, 2.0])
    sgd = optim.SGD([w], lr=1.0)
    with Context(TRAINING=1):
        for scale in (1.0, 2.0, 3.0):
            loss = (w * scale).sum()
            loss.backward()
            loss.item()
        sgd.step()
    assert w.tolist() == [-5, -4]
