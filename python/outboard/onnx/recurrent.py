"""RNN, GRU and LSTM: every step of the sequence is recorded, so the graph grows with its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outboard import Tensor
from outboard.onnx.registry import op

_Function = Callable[[Tensor], Tensor]
_Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _activation(name: str, alpha: float | None, beta: float | None) -> _Function:
    """By the names that ONNX gives them, which it reads in any case."""
    named: dict[str, _Function] = {
        "relu": Tensor.relu,
        "tanh": Tensor.tanh,
        "sigmoid": Tensor.sigmoid,
        "softsign": Tensor.softsign,
        "softplus": Tensor.softplus,
        "affine": lambda x: x * (1.0 if alpha is None else alpha) + (0.0 if beta is None else beta),
        "leakyrelu": lambda x: x.leaky_relu(0.01 if alpha is None else alpha),
        "thresholdedrelu": lambda x: (x > (1.0 if alpha is None else alpha)).where(x, 0),
        "scaledtanh": lambda x: (x * (1.0 if beta is None else beta)).tanh() * (1.0 if alpha is None else alpha),
        "hardsigmoid": lambda x: x.hardsigmoid(0.2 if alpha is None else alpha, 0.5 if beta is None else beta),
        "elu": lambda x: x.elu(1.0 if alpha is None else alpha),
    }
    if name.lower() not in named:
        raise NotImplementedError(f"a recurrent operator with the activation {name!r}")
    return named[name.lower()]


def _activations(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    usual: Sequence[str],
    directions: int,
) -> list[list[_Function]]:
    """For each direction as many as `usual` has. Parameters are given in order to those that take them."""
    names = list(usual) * directions if names is None else list(names)
    alphas, betas = list(alphas or ()), list(betas or ())
    takes_alpha = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    takes_beta = {"affine", "scaledtanh", "hardsigmoid"}
    functions = [
        _activation(
            name,
            alphas.pop(0) if alphas and name.lower() in takes_alpha else None,
            betas.pop(0) if betas and name.lower() in takes_beta else None,
        )
        for name in names
    ]
    return [functions[i * len(usual) : (i + 1) * len(usual)] for i in range(directions)]


def _clipper(clip: float | None) -> _Function:
    return (lambda x: x) if clip is None else (lambda x: x.clip(-clip, clip))


def _run(
    x: Tensor,
    lengths: Tensor | None,
    direction: str,
    layout: int,
    states: list[Tensor | None],
    hidden_size: int,
    make_step: Callable[[int], Callable[[Tensor, list[Tensor]], list[Tensor]]],
):
    """Y, and the last of each state. The first state is the output."""
    if layout:  # [batch, length, input], and states with the batch first
        x = x.transpose(0, 1)
        states = [state if state is None else state.transpose(0, 1) for state in states]
    steps, batch = x.shape[0], x.shape[1]
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    outputs, lasts = [], []
    for way, backwards in enumerate(ways):
        step = make_step(way)
        now = [Tensor.zeros(batch, hidden_size, dtype=x.dtype) if s is None else s[way] for s in states]
        written: list[Tensor] = []
        for time in reversed(range(steps)) if backwards else range(steps):
            after = step(x[time], now)
            if lengths is not None:  # behind the end of a sequence its state stays, and its output is 0
                inside = (lengths > time).reshape(-1, 1)
                written.append(inside.where(after[0], 0))
                now = [inside.where(new, old) for new, old in zip(after, now)]
            else:
                written.append(after[0])
                now = after
        outputs.append(Tensor.stack(*(reversed(written) if backwards else written)))
        lasts.append(now)
    y = Tensor.stack(*outputs, dim=1)  # [length, directions, batch, hidden]
    final = [Tensor.stack(*(last[i] for last in lasts)) for i in range(len(states))]
    if layout:
        y = y.permute(2, 0, 1, 3)
        final = [state.transpose(0, 1) for state in final]
    return (y, *final)


def _gates(x: Tensor, w: Tensor, b: Tensor | None, count: int) -> list[Tensor]:
    product = x.matmul(w.transpose())
    return list((product if b is None else product + b).chunk(count, 1))


def _biases(b: Tensor | None, way: int) -> tuple[Tensor | None, Tensor | None]:
    """Those of the input, then those of the state."""
    if b is None:
        return None, None
    half = b.shape[1] // 2
    return b[way, :half], b[way, half:]


@op("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 1,  # version 1
):
    functions = _activations(activations, activation_alpha, activation_beta, ("Tanh",), w.shape[0])
    clipped = _clipper(clip)

    def make_step(way: int):
        bias_x, bias_h = _biases(b, way)

        def step(value: Tensor, state: list[Tensor]) -> list[Tensor]:
            (from_x,), (from_h,) = _gates(value, w[way], bias_x, 1), _gates(state[0], r[way], bias_h, 1)
            return [functions[way][0](clipped(from_x + from_h))]

        return step

    return _run(x, sequence_lens, direction, layout, [initial_h], r.shape[-1], make_step)


@op("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 1,  # version 1
):
    functions = _activations(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh"), w.shape[0])
    clipped, size = _clipper(clip), r.shape[-1]

    def make_step(way: int):
        bias_x, bias_h = _biases(b, way)
        inner, outer = functions[way]

        def step(value: Tensor, state: list[Tensor]) -> list[Tensor]:
            h = state[0]
            update_x, reset_x, new_x = _gates(value, w[way], bias_x, 3)
            bias = None if bias_h is None else bias_h[: 2 * size]
            update_h, reset_h = _gates(h, r[way, : 2 * size], bias, 2)
            update, reset = inner(clipped(update_x + update_h)), inner(clipped(reset_x + reset_h))
            last = None if bias_h is None else bias_h[2 * size :]
            if linear_before_reset:
                new_h = reset * _gates(h, r[way, 2 * size :], last, 1)[0]
            else:
                new_h = _gates(reset * h, r[way, 2 * size :], last, 1)[0]
            return [(1 - update) * outer(clipped(new_x + new_h)) + update * h]

        return step

    return _run(x, sequence_lens, direction, layout, [initial_h], size, make_step)


@op("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 1,  # version 1
):
    functions = _activations(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh", "Tanh"), w.shape[0])
    clipped, size = _clipper(clip), r.shape[-1]

    def make_step(way: int):
        bias_x, bias_h = _biases(b, way)
        inner, new, outer = functions[way]
        peep_in, peep_out, peep_forget = (0, 0, 0) if p is None else p[way].chunk(3)

        def step(value: Tensor, state: list[Tensor]) -> list[Tensor]:
            h, c = state
            from_x, from_h = _gates(value, w[way], bias_x, 4), _gates(h, r[way], bias_h, 4)
            in_, out, forget, cell = (a + s for a, s in zip(from_x, from_h))
            in_ = inner(clipped(in_ + peep_in * c))
            forget = 1 - in_ if input_forget else inner(clipped(forget + peep_forget * c))
            c = forget * c + in_ * new(clipped(cell))
            return [inner(clipped(out + peep_out * c)) * outer(c), c]

        return step

    return _run(x, sequence_lens, direction, layout, [initial_h, initial_c], size, make_step)
