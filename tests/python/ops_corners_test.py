"""Where a formula's limits are: zeros, infinities, NaN, ends of a domain, ties. Values as NumPy has them, gradients as PyTorch."""
import numpy as np
import pytest
import torch

from outboard import Tensor

INF, NAN = float("inf"), float("nan")
VALUES = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 65, 1e30, -1e30, 1e-30, INF, -INF, NAN]
NUMBERS = [0.3, -0.3, 0.5, -0.5, 1, 1.5, 2, 2.5, 3, -1, -2, -3, 65, 66, -65, -66, 100.5]


def arrays(*values):
    return [np.array(x, np.float32) for x in values]


def with_gradients(function, values, is_torch=False):
    """What the function gives and its gradients, of the sum."""
    if is_torch:
        x = [torch.tensor(v, requires_grad=True) for v in values]
    else:
        x = [Tensor(v) for v in values]
    y = function(*x)
    y.sum().backward()
    return [y.detach().numpy() if is_torch else y.numpy(), *[v.grad.numpy() for v in x]]


def compare(ours, theirs, *values):
    """The value and the gradients by those of PyTorch."""
    got, wanted = with_gradients(ours, values), with_gradients(theirs, values, is_torch=True)
    for i, (a, b) in enumerate(zip(got, wanted)):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-12,
                                   err_msg=f"{'value' if i == 0 else f'gradient {i - 1}'} of {[v.tolist() for v in values]}")


@pytest.mark.parametrize("number", NUMBERS)
def test_power_by_a_number(number):
    (x,) = arrays(VALUES)
    # PyTorch has NaN for -inf ** 1.5, where IEEE 754 and NumPy have infinity, and -inf for -0.0 ** -0.5.
    skip = np.flatnonzero((x == -INF) | (np.signbit(x) & (x == 0) & (number == -0.5)))
    with np.errstate(all="ignore"):
        wanted = np.power(x, np.float32(number))
    if number == 0.5:
        wanted[x == -INF] = NAN  # sqrt, as PyTorch
    np.testing.assert_allclose((Tensor(x) ** number).numpy(), wanted, rtol=2e-5, atol=1e-37)
    others = np.delete(x, skip)
    compare(lambda x: x ** number, lambda x: x ** number, others)


@pytest.mark.parametrize("number", [0.3, 1.5, 2, 3, -1, -2, 65])
def test_powers_of_minus_infinity_have_a_slope(number):
    ((value, slope),) = zip(*with_gradients(lambda x: x ** number, arrays([-INF])))
    assert value == np.power(-INF, number)
    assert slope == (0 if number < 1 else INF * (1 if number in (3, 65) else -1))


def test_powers_of_tensors():
    bases, exponents = np.meshgrid(np.array(VALUES, np.float32), np.array([*VALUES, *NUMBERS], np.float32))
    x, y = bases.ravel(), exponents.ravel()
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
    np.testing.assert_allclose((Tensor(x) ** Tensor(y)).numpy(), wanted, rtol=1e-4, atol=1e-37)
    # Where base and exponent are finite, gradients are PyTorch's, which takes 1e-30 - 1 for -1 and has slopes at -0 that are
    # those of no side.
    finite = np.isfinite(x) & np.isfinite(y) & (np.abs(x) < 1e9) & (np.abs(y) < 100)
    finite &= ~(np.signbit(x) & ((x == 0) | (y == np.float32(1e-30))))
    x, y = x[finite], y[finite]
    got = with_gradients(lambda x, y: x ** y, [x, y])
    theirs = with_gradients(lambda x, y: x ** y, [x, y], is_torch=True)
    np.testing.assert_allclose(got[1], theirs[1], rtol=1e-3, atol=1e-30)
    np.testing.assert_allclose(got[2], theirs[2], rtol=1e-3, atol=1e-30)


@pytest.mark.parametrize("number", [0, 0.5, 1, 2, 10])
def test_a_number_to_the_power_of_a_tensor(number):
    (y,) = arrays([0, 1, -1, 2, 0.5, -3, INF, -INF, NAN])
    with np.errstate(all="ignore"):
        wanted = np.power(np.float32(number), y)
    np.testing.assert_allclose((number ** Tensor(y)).numpy(), wanted, rtol=1e-5)
    compare(lambda y: number ** y, lambda y: number ** y, y[:6])


def test_gradients_of_gradients_of_powers():
    x = Tensor([0.0, 2.0, 4.0])
    (first,) = (x ** 2.5).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    np.testing.assert_allclose(second.numpy(), 3.75 * np.sqrt([0, 2, 4]), rtol=1e-5)
    y = Tensor([2.0, 3.0, 0.5])
    (of_y,) = (x ** y).sum().gradient(y)
    (mixed,) = of_y.sum().gradient(x)
    a, b = np.array([2.0, 4.0]), np.array([3.0, 0.5])
    np.testing.assert_allclose(mixed.numpy()[1:], a ** (b - 1) * (1 + b * np.log(a)), rtol=1e-4)


def test_a_power_that_is_written_with_logarithms():
    """exp2(y log2 x) has the power's gradient, also where its parts are asked for."""
    x = Tensor([0.0, 2.0])
    (slope,) = (x.log2() * 3).exp2().sum().gradient(x)
    np.testing.assert_allclose(slope.numpy(), [0, 12], rtol=1e-5)
    log = Tensor([2.0, 4.0]).log2()
    (of_log,) = (log * 3).exp2().sum().gradient(log)
    np.testing.assert_allclose(of_log.numpy(), 3 * np.log(2) * np.array([8.0, 64.0]), rtol=1e-5)


# Names, and the values at which PyTorch has another convention: a tie of its own, or NaN that it lets pass.
@pytest.mark.parametrize("name,skip", [
    ("exp", []), ("exp2", []), ("log", []), ("log2", []), ("sqrt", []), ("rsqrt", []), ("reciprocal", []), ("square", []),
    ("abs", []), ("sigmoid", []), ("tanh", []), ("asin", []), ("acos", [NAN]), ("atan", []), ("sinh", []), ("cosh", []),
    ("asinh", []), ("erf", []), ("log10", []), ("softplus", []), ("silu", []), ("relu", [NAN])])
def test_functions_at_their_limits(name, skip):
    x = np.array([v for v in [*VALUES, 88, -88, 300, -300] if not any(v == s or (v != v and s != s) for s in skip)], np.float32)
    theirs = getattr(torch.nn.functional, name, None) if name in ("softplus", "silu") else None
    compare(lambda x: getattr(x, name)(), theirs or (lambda x: getattr(x, name)()), x)


def test_acosh_below_its_domain_has_no_slope():
    (x,) = arrays([0.999, 0.5, 0, -0.5, -1, -2, -1e30, -INF, NAN])
    value, slope = with_gradients(lambda x: x.acosh(), [x])
    assert np.isnan(value).all() and np.isnan(slope).all()
    compare(lambda x: x.acosh(), lambda x: x.acosh(), *arrays([1, 1.5, 3, 1e30, INF]))


def test_a_logistic_function_written_out():
    (x,) = arrays([300, -300, 0, 1, -1, 20, -20])
    wanted = torch.sigmoid(torch.tensor(x)).numpy()
    for function in (lambda x: x.exp() / (1 + x.exp()), lambda x: x.exp() / (x.exp() + 1), lambda x: 1 / (1 + (-x).exp())):
        slope = with_gradients(function, [x])[1]
        np.testing.assert_allclose(slope, wanted * (1 - wanted), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("number", [0.0, 2.0, -1.5])
def test_ties_with_a_number_share_the_gradient(name, number):
    (x,) = arrays([0, 2, -1.5, 1, 5, -5, INF, -INF])
    compare(lambda x: getattr(x, name)(number), lambda x: getattr(torch, name)(x, torch.tensor(number)), x)
    compare(lambda x: getattr(x, name)(Tensor([number])), lambda x: getattr(torch, name)(x, torch.tensor(number)), x)


def test_relu_has_no_slope_at_0():
    assert with_gradients(lambda x: x.relu(), arrays([0, -0.0, 1]))[1].tolist() == [0, 0, 1]


@pytest.mark.parametrize("name", ["hardsigmoid", "hardswish", "relu6"])
def test_hard_activations_of_large_numbers(name):
    (x,) = arrays([-1e30, -1e8, -5, -1, 0, 1, 5, 1e8, 1e30])
    compare(lambda x: getattr(x, name)(), getattr(torch.nn.functional, name), x)


def test_equal_constants_are_not_counted_together():
    """Two constants of the graph are one node, of which no gradient is that of either."""
    for make in (lambda: Tensor.eye(2), lambda: Tensor.arange(3).float(), lambda: Tensor.linspace(0, 1, 3)):
        a, b = make(), make()
        product = (a * b * 3).sum()
        with pytest.raises(RuntimeError, match="same constant"):
            product.gradient(a)
        product.backward()
        assert a.grad is None and b.grad is None
        a, b = make().realize(), make().realize()
        (a * b * 3).sum().backward()
        np.testing.assert_array_equal(a.grad.numpy(), 3 * b.numpy())
        np.testing.assert_array_equal(b.grad.numpy(), 3 * a.numpy())
    alone = Tensor.arange(3).float()
    (alone * alone).sum().backward()
    assert alone.grad.tolist() == [0, 2, 4]


def test_files_are_no_devices():
    for make in (lambda: Tensor.empty(4, device="disk:/tmp/x"), lambda: Tensor([1.0], device="DISK:/tmp/x"),
                 lambda: Tensor([1.0]).to("disk:/tmp/x"), lambda: Tensor([1.0]).to_("disk:x"),
                 lambda: Tensor.zeros(4, device="disk:x"), lambda: Tensor.rand(4, device="disk:x"),
                 lambda: Tensor.randint(4, device="disk:x"), lambda: Tensor.full((2,), 1, device="disk:x"),
                 lambda: Tensor.arange(4, device="disk:x"), lambda: Tensor([1.0]).clone(device="disk:x"),
                 lambda: Tensor([1.0]).rand_like(device="disk:x"), lambda: Tensor([1.0]).full_like(1, device="disk:x")):
        with pytest.raises(NotImplementedError, match="a tensor is not a file"):
            make()
    assert Tensor([1.0], device="CUDA:1").to("disk").tolist() == [1]
