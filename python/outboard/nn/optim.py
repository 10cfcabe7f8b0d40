"""Optimisers, with tinygrad's constructors. Their rules are the C++ library's (client/nn/optim.h).

    optimiser = Adam(nn.state.get_parameters(model))
    with Context(TRAINING=1):
        optimiser.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optimiser.step()

A step uses the gradients up: reading one after it, or another step without zero_grad() before backward(), is an error.
The arguments `device` and `fused` are taken and change nothing: there is one device, and a step is one graph.
"""
from __future__ import annotations

from outboard import _core
from outboard._core import Tensor
from outboard.device import Device
from outboard.helpers import dedup, flatten


class Optimizer:
    """What optimisers share. `lr` is a tensor of one float32, which may be set between steps.

    One of your own overrides `_step`.
    ValueError: a learning rate below 0. AssertionError: no parameter, or at a step one without a gradient.
    """

    _rule = None

    def __init__(self, params: list[Tensor], lr: float, device=None, fused=False):
        if lr < 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        self.params = dedup([param for param in params if param.is_param])
        assert self.params, "optimizer must have at least one param"
        self.buffers = dedup([param for param in params if not param.is_param])
        self._lr = Tensor([float(lr)], dtype="float32")

    @property
    def device(self) -> str:
        """The kind of the session's device."""
        return Device.DEFAULT

    @property
    def lr(self) -> Tensor:
        """The learning rate, a tensor [1] of float32. Setting it counts from the next step on."""
        return self._lr

    @lr.setter
    def lr(self, value) -> None:
        self._lr.assign(value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.params)} parameters>"

    def _follow(self, rule, *names: str) -> None:
        """Steps by a rule of the library, whose state of one tensor for each parameter these are the names of."""
        self._rule, self._lr = rule, rule.lr
        state, count = rule.state, len(self.params)
        self._scalars = state[: len(state) - count * len(names)]
        for i, name in enumerate(names):
            first = len(self._scalars) + i * count
            setattr(self, name, state[first : first + count])

    def zero_grad(self) -> None:
        """Forgets the gradient of every parameter, as each step needs before its backward()."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Sends the step. RuntimeError: not in training."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """What has to be realised to do one step."""
        if not _core.training():
            raise RuntimeError("the optimizer steps in training only: use it within Context(TRAINING=1)")
        gradients = [param.grad for param in self.params]
        assert all(gradient is not None for gradient in gradients), "a parameter has no gradient"
        if self._rule is not None:
            del gradients  # the step takes them
            return self._rule.schedule_step() + self.buffers
        updates, extra = self._step(self.params, gradients)
        for param, update in zip(self.params, updates):
            param.assign((param.detach() - update).cast(param.dtype))
        return extra + self.params + self.buffers

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """What to subtract from each parameter, and state that was assigned."""
        raise NotImplementedError


class OptimizerGroup(Optimizer):
    """Several optimisers that step together."""

    def __init__(self, *optimizers: Optimizer):
        self.optimizers = optimizers
        self.params = flatten([optimizer.params for optimizer in optimizers])
        self.buffers = flatten([optimizer.buffers for optimizer in optimizers])

    def __repr__(self) -> str:
        return f"<OptimizerGroup of {', '.join(map(repr, self.optimizers))}>"

    def __getitem__(self, i: int) -> Optimizer:
        return self.optimizers[i]

    def zero_grad(self) -> None:
        """Forgets the gradients of all of them."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def schedule_step(self) -> list[Tensor]:
        """What has to be realised to do one step of each."""
        return flatten([optimizer.schedule_step() for optimizer in self.optimizers])


class LARS(Optimizer):
    """SGD whose step in each parameter is scaled by its norm and its gradient's. https://arxiv.org/abs/1708.03888"""

    def __init__(self, params: list[Tensor], lr=0.001, momentum=0.9, weight_decay=1e-4, ns_steps=0,
                 ns_coefficients=None, nesterov=False, classic=True, pre_wd=True, tcoef=0.001, device=None,
                 fused=False):
        if momentum < 0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        super().__init__(params, lr, device, fused)
        nesterov = nesterov and momentum > 0
        if ns_coefficients is None and pre_wd:
            rule = _core.LarsRule(self.params, lr, momentum, weight_decay, nesterov, classic, tcoef)
        elif ns_coefficients is not None and not (classic or pre_wd or tcoef):
            rule = _core.MuonRule(self.params, lr, momentum, weight_decay, ns_steps, list(ns_coefficients), nesterov)
        else:
            raise NotImplementedError("LARS with Newton-Schulz is Muon: classic and pre_wd are False, tcoef is 0")
        self._follow(rule, *(["b"] if momentum else []))


def SGD(params: list[Tensor], lr=0.001, momentum=0.0, weight_decay=0.0, nesterov=False, classic=False, device=None,
        fused=False):
    """Stochastic gradient descent; `classic` momentum sums what is subtracted: it remembers old learning rates."""
    return LARS(params, lr, momentum, weight_decay, 0, None, nesterov, classic=classic, pre_wd=True, tcoef=0.0,
                device=device, fused=fused)


def Muon(params: list[Tensor], lr=0.001, momentum=0.95, weight_decay=0.1, ns_steps=5,
         ns_coefficients=(3.4445, -4.775, 2.0315), nesterov=True, device=None, fused=False):
    """SGD with a momentum that is made orthogonal. https://kellerjordan.github.io/posts/muon/"""
    return LARS(params, lr, momentum, weight_decay, ns_steps, ns_coefficients, nesterov, classic=False, pre_wd=False,
                tcoef=0.0, device=device, fused=fused)


class LAMB(Optimizer):
    """AdamW whose step in each parameter is as long as that parameter. https://arxiv.org/abs/1904.00962"""

    def __init__(self, params: list[Tensor], lr=0.001, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.0, adam=False,
                 device=None, fused=False):
        if weight_decay < 0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        super().__init__(params, lr, device, fused)
        self._follow(_core.LambRule(self.params, lr, b1, b2, eps, weight_decay, adam), "m", "v")
        self.b1_t, self.b2_t = self._scalars


def AdamW(params: list[Tensor], lr=0.001, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01, device=None, fused=False):
    """Adam with weight decay apart from the gradient. https://arxiv.org/abs/1711.05101"""
    return LAMB(params, lr, b1, b2, eps, weight_decay, adam=True, device=device, fused=fused)


def Adam(params: list[Tensor], lr=0.001, b1=0.9, b2=0.999, eps=1e-8, device=None, fused=False):
    """https://arxiv.org/abs/1412.6980"""
    return LAMB(params, lr, b1, b2, eps, 0.0, adam=True, device=device, fused=fused)
