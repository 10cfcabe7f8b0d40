"""Optimisers against PyTorch's, and where it has none against the papers' formulas in NumPy."""
import numpy as np
import pytest
import torch

from outboard import Context, Session, Tensor
from outboard.nn import optim

SHAPES = [(3, 4), (4,)]


def start(seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def ours(make, steps=4):
    params = [Tensor(value) for value in start()]
    x = Tensor(start(1)[0])
    optimiser = make(params)
    with Context(TRAINING=1):
        for _ in range(steps):
            optimiser.zero_grad()
            ((params[0] * x + params[1]).tanh() * params[0]).sum().backward()
            optimiser.step()
    return [param.numpy() for param in params]


def gradients(params):
    tensors = [torch.tensor(param, requires_grad=True) for param in params]
    ((tensors[0] * torch.tensor(start(1)[0]) + tensors[1]).tanh() * tensors[0]).sum().backward()
    return [tensor.grad.numpy() for tensor in tensors]


def torchs(make, steps=4):
    params = [torch.tensor(value, requires_grad=True) for value in start()]
    x = torch.tensor(start(1)[0])
    optimiser = make(params)
    for _ in range(steps):
        optimiser.zero_grad()
        ((params[0] * x + params[1]).tanh() * params[0]).sum().backward()
        optimiser.step()
    return [param.detach().numpy() for param in params]


def by_hand(update, steps=4):
    params = start()
    states = [{} for _ in params]
    for step in range(1, steps + 1):
        for param, gradient, state in zip(params, gradients(params), states):
            param -= update(param, gradient, state, step)
    return params


def check(actual, expected):
    for a, b in zip(actual, expected):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("arguments", [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"weight_decay": 0.1},
    {"momentum": 0.8, "weight_decay": 0.1, "nesterov": True},
])
def test_sgd(arguments):
    theirs = torchs(lambda p: torch.optim.SGD(p, lr=0.05, **arguments))
    check(ours(lambda p: optim.SGD(p, lr=0.05, **arguments)), theirs)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(decay):
    if decay == 0:
        check(ours(lambda p: optim.Adam(p, lr=0.01)), torchs(lambda p: torch.optim.Adam(p, lr=0.01)))
    check(ours(lambda p: optim.AdamW(p, lr=0.01, b1=0.8, b2=0.95, weight_decay=decay)),
          torchs(lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), weight_decay=decay)))


def test_classic_momentum_has_the_learning_rate_in_it():
    def update(param, gradient, state, step):
        state["b"] = 0.9 * state.get("b", 0) + 0.05 * (gradient + 0.1 * param)
        return state["b"]

    check(ours(lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1, classic=True)), by_hand(update))


def test_lars():
    def update(param, gradient, state, step):
        w, g = np.linalg.norm(param), np.linalg.norm(gradient)
        state["b"] = 0.9 * state.get("b", 0) + 0.5 * (0.01 * w / (g + 1e-4 * w)) * (gradient + 1e-4 * param)
        return state["b"]

    check(ours(lambda p: optim.LARS(p, lr=0.5, tcoef=0.01)), by_hand(update))


def test_lamb():
    def update(param, gradient, state, step):
        state["m"] = 0.9 * state.get("m", 0) + 0.1 * gradient
        state["v"] = 0.999 * state.get("v", 0) + 0.001 * gradient**2
        up = state["m"] / (1 - 0.9**step) / (np.sqrt(state["v"] / (1 - 0.999**step)) + 1e-6) + 0.1 * param
        return 0.02 * np.linalg.norm(param) / np.linalg.norm(up) * up

    check(ours(lambda p: optim.LAMB(p, lr=0.02, weight_decay=0.1)), by_hand(update))


def test_muon():
    def newton_schulz(x):
        if x.shape[0] > x.shape[1]:
            return newton_schulz(x.T).T
        x = x / (np.linalg.norm(x) + 1e-7)
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x - 4.775 * square @ x + 2.0315 * square @ square @ x
        return x

    def update(param, gradient, state, step):
        state["b"] = 0.95 * state.get("b", 0) + gradient
        return 0.02 * newton_schulz(gradient + 0.95 * state["b"]) + 0.1 * 0.02 * param

    params = start()
    w, b = Tensor(params[0]), Tensor(params[1])
    muon, states, expected = optim.Muon([w], lr=0.02), {}, params[0].copy()
    x = Tensor(start(1)[0])
    with Context(TRAINING=1):
        for step in range(4):
            muon.zero_grad()
            ((w * x + b).tanh() * w).sum().backward()
            muon.step()
            expected -= update(expected, gradients([expected, params[1]])[0], states, step)
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="axes"):
        optim.Muon([Tensor([1.0, 2.0])])


def test_a_group_steps_together():
    class Both:
        def __init__(self, params):
            self.all = [torch.optim.SGD(params[:1], lr=0.05), torch.optim.Adam(params[1:], lr=0.01)]

        def zero_grad(self):
            [each.zero_grad() for each in self.all]

        def step(self):
            [each.step() for each in self.all]

    check(ours(lambda p: optim.OptimizerGroup(optim.SGD(p[:1], lr=0.05), optim.Adam(p[1:], lr=0.01))), torchs(Both))


def test_one_of_your_own():
    class Sign(optim.Optimizer):
        def _step(self, params, grads):
            return [self.lr * grad.sign() for grad in grads], []

    expected = by_hand(lambda param, gradient, state, step: np.float32(0.1) * np.sign(gradient))
    check(ours(lambda p: Sign(p, 0.1)), expected)


def test_what_is_no_parameter_is_realised_and_left():
    w, mean = Tensor([1.0, 2.0]), Tensor([5.0]).is_param_(False)
    sgd = optim.SGD([w, w, mean], lr=0.5)
    assert len(sgd.params) == 1 and len(sgd.buffers) == 1
    with Context(TRAINING=1):
        (w * mean).sum().backward()
        sgd.step()
    assert w.tolist() == [-1.5, -0.5] and mean.tolist() == [5]


def test_the_learning_rate_is_a_tensor():
    w = Tensor([1.0])
    sgd = optim.SGD([w], lr=0.5)
    assert sgd.lr.tolist() == [0.5]
    with Context(TRAINING=1):
        for rate in (0.25, 0.125):
            sgd.lr.assign(Tensor([rate]))
            sgd.zero_grad()
            w.sum().backward()
            sgd.step()
    assert w.tolist() == [0.625]


def test_errors():
    w = Tensor([1.0])
    with pytest.raises(ValueError):
        optim.SGD([w], lr=-1)
    with pytest.raises(AssertionError):
        optim.SGD([w.is_param_(False)])
    with pytest.raises(RuntimeError, match="TRAINING"):
        optim.SGD([Tensor([1.0])]).step()


def test_a_step_computes_the_loss_along():
    w = Tensor([1.0, 2.0]).realize()
    optimiser = optim.SGD([w], lr=0.5)
    with Context(TRAINING=1):
        for expected in (5.0, 0.0):
            optimiser.zero_grad()
            loss = (w * w).sum().backward()
            optimiser.step()
            before = Session.current().stats.steps
            assert loss.item() == expected and loss.item() == expected
            assert Session.current().stats.steps == before  # no second forward pass


def test_a_learning_rate_that_is_set_is_used():
    w = Tensor([1.0]).realize()
    optimiser = optim.SGD([w], lr=0.5)
    optimiser.lr = Tensor([0.25])
    with Context(TRAINING=1):
        (w * 1).sum().backward()
        optimiser.step()
    assert w.tolist() == [0.75]


def test_a_parameter_without_a_gradient_is_told():
    w, unused = Tensor([1.0]).realize(), Tensor([1.0]).realize()
    optimiser = optim.SGD([w, unused], lr=0.5)
    with Context(TRAINING=1):
        (w * 1).sum().backward()
        with pytest.raises(AssertionError, match="no gradient"):
            optimiser.step()
