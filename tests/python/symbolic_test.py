"""Sizes of Variables as tinygrad's programs use them: expressions that are not bound, parts that fit for some values,
arguments of TinyJit, and decoders with a cache of keys and values."""
import contextlib
import io
import pathlib
import re
import threading

import numpy as np
import pytest

from outboard import Tensor, TinyJit, Variable
from outboard.jit import JitError

# ---- variables that are not bound ---------------------------------------------------------------

V, W = Variable("v", 1, 10), Variable("w", 0, 4)
EXPRESSIONS = {
    "(v+1)": (V + 1, 2, 11),
    "(v*2)": (V * 2, 2, 20),
    "(v*2+-1)": (2 * V - 1, 1, 19),
    "(v*-1+1)": (1 - V, -9, 0),
    "(v*-1)": (-V, -10, -1),
    "(v+3)": (V + 1 + 2, 4, 13),
    "(v//2)": (V // 2, 0, 5),
    "(v%3)": (V % 3, 0, 2),
    "(v*-1//2)": (-V // 2, -5, -1),
    "(5//v)": (5 // V, 0, 5),
    "(7%v)": (7 % V, 0, 9),
    "(v+w*-1)": (V - W, -3, 10),
    "(v*w)": (V * W, 0, 40),
    "((v+w)//2)": ((V + W) // 2, 0, 7),
    "(v*2+1)": ((V * 4 + 2) // 2, 3, 21),
    "v": ((V + 3 - 3) * 1 // 1 % 20, 1, 10),
    "0": (V * 2 - V - V, 0, 0),
}
CONDITIONS = {
    "(v<5)": (V < 5, False, True),
    "((5<v)!=True)": (V <= 5, False, True),
    "(5<v)": (V > 5, False, True),
    "((v<5)!=True)": (V >= 5, False, True),
    "(v<2)": (1 + V < 3, False, True),
    "True": (V + 1 < 12, True, True),
    "False": (V > 10, False, False),
}


@pytest.mark.parametrize("text", EXPRESSIONS | CONDITIONS)
def test_expressions_print_and_have_bounds(text):
    expression, least, greatest = (EXPRESSIONS | CONDITIONS)[text]
    assert (str(expression), repr(expression), expression.render()) == (text, text, text)
    assert (expression.vmin, expression.vmax) == (least, greatest)


@pytest.mark.parametrize("text", [text for text in EXPRESSIONS if text not in ("0", "(v*-1//2)")])
def test_an_expression_has_the_values_of_python(text):
    expression, least, greatest = EXPRESSIONS[text]
    for v in range(1, 11):
        for w in range(5):
            value = eval(text, {"v": v, "w": w})
            assert least <= value <= greatest
            assert expression.sym_infer({"v": v, "w": w}) == value == expression.substitute({V: v, W: w})
            if least >= 0 and text != "(5//v)":
                bound = expression.substitute({V: V.bind(v), W: W.bind(w)})
                assert bound.val == value


def test_expressions_compare_and_substitute():
    assert V + W == W + V and hash(V + W) == hash(W + V) and V + 1 != V + 2 and {V + 1: "a"}[1 + V] == "a"
    assert (V * 2 + 1).variables() == [V] and (V + W).variables() == [V, W]
    assert str((V * 2 + 1).substitute({V: W + 1})) == "(w*2+3)"
    assert str(V.bind(3) * 2 + 1) == "(v*2+1)=7"
    assert (V.bind(3) + 1).render() == "(v+1)" and (V.bind(3) + 1).vmax == 11
    assert bool(V < 50) and not V > 50 and list(range(V * 0 + 2)) == [0, 1]
    for call in (lambda: V // W, lambda: V % 0):
        with pytest.raises(ZeroDivisionError):
            call()
    with pytest.raises(OverflowError):
        V * 2**62 * 4
    with pytest.raises(ValueError, match="bind w too"):
        (V + W).substitute({V: V.bind(3)})
    with pytest.raises(ValueError, match="depends on"):
        bool(V < 5)
    for call in (lambda: V + 1.5, lambda: V / 2, lambda: "a" + V, lambda: V < "a"):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("use", [
    lambda x: x[:V], lambda x: x[V + 1:], lambda x: x[V], lambda x: x.shrink(((0, V), None)), lambda x: x.reshape(V, 2),
    lambda x: Tensor.ones(V + 1), lambda x: Tensor.full((2, V), 1.0), lambda x: Tensor.arange(V), lambda x: x + V,
    lambda x: V * x, lambda x: x == V, lambda x: x.triu(V - 1), lambda x: x.pad(((0, V), None)), lambda x: int(V),
    lambda x: range(V + 1), lambda x: float(V), lambda x: V + V.bind(3), lambda x: V.bind(3) + V,
    lambda x: x.expand(V, 10, 2), lambda x: x.__setitem__(slice(0, 1), V),
])
def test_where_a_number_is_needed(use):
    with pytest.raises(ValueError, match="not bound.*bind"):
        use(Tensor.zeros(10, 2))


# ---- parts that fit for some values only --------------------------------------------------------

ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)


def test_a_part_that_fits_for_some_values():
    x, start, n = Tensor(ROWS).realize(), Variable("start", 0, 10), Variable("n", 1, 10)
    for i in (0, 3, 8):
        s = start.bind(i)
        np.testing.assert_array_equal(x[s:s + 2].numpy(), ROWS[i:i + 2])
        np.testing.assert_array_equal(x.shrink(((s, s + 1), None)).numpy(), ROWS[i:i + 1])
        np.testing.assert_array_equal(x[s].numpy(), ROWS[i])
        np.testing.assert_array_equal(x[s:].sum(0).numpy(), ROWS[i:].sum(0))
        for k in (1, 2):
            np.testing.assert_array_equal(x[s:s + n.bind(k)].numpy(), ROWS[i:i + k])
    for i in (1, 10):
        part = x[:n.bind(i)]
        np.testing.assert_array_equal(part[0].numpy(), ROWS[0])
        np.testing.assert_array_equal(part[-1].numpy(), ROWS[i - 1])
        np.testing.assert_array_equal(part[-1:, 1].numpy(), ROWS[i - 1:i, 1])
    for call in (lambda s: x[s:s + 2], lambda s: x.shrink(((s, s + 2), None)), lambda s: x[2 * s],
                 lambda s: x[:s - 1][9], lambda s: x[s:4]):
        with pytest.raises(ValueError, match="do not lie in an axis.*start = 9"):
            call(start.bind(9))


def test_a_part_beside_a_size_of_another_thread():
    rows = Variable("rows_of_threads", 1, 20).bind(3)  # the part has 1 to 10 of them
    others = []
    thread = threading.Thread(target=lambda: others.append(Tensor.ones(rows, 2)))
    part = Tensor(ROWS)[:rows]
    thread.start()
    thread.join()
    (whole,) = others
    np.testing.assert_array_equal((part + whole).numpy(), ROWS[:3] + 1)
    thread = threading.Thread(target=lambda: others.append((Tensor(ROWS)[:rows] * 2)))
    thread.start()
    thread.join()
    both = Tensor.ones(rows, 2) + 1
    np.testing.assert_array_equal((both + others[1]).numpy(), ROWS[:3] * 2 + 2)


@pytest.mark.parametrize("write", ["assign", "shrink", "items", "add"])
def test_writing_such_a_part(write):
    start, want = Variable("start", 0, 10), np.zeros((10, 2), np.float32)
    cache = Tensor.zeros(10, 2).contiguous().realize()
    for i in (0, 5, 8, 5):
        s, new = start.bind(i), Tensor(ROWS[:2] + i)
        if write == "assign":
            cache[s:s + 2].assign(new).realize()
        elif write == "shrink":
            cache.shrink(((s, s + 2), None)).assign(new).realize()
        elif write == "items":
            cache[s:s + 2] = new
        else:
            cache[s:s + 2] += new
        want[i:i + 2] = ROWS[:2] + i + (want[i:i + 2] if write == "add" else 0)
        np.testing.assert_array_equal(cache.numpy(), want)
    with pytest.raises(ValueError, match="9:11"):
        cache[start.bind(9):start.bind(9) + 2] = 1.0
    np.testing.assert_array_equal(cache.numpy(), want)


# ---- operators over such an axis ----------------------------------------------------------------

@pytest.mark.parametrize("n", [1, 2, 5])
def test_operators_over_an_axis_of_a_variable(n):
    values = np.random.default_rng(0).integers(-9, 9, (5, 6)).astype(np.float32)
    size, want = Variable("n", 1, 5).bind(n), values[:n]
    x = Tensor(values).realize()[:size]
    for axis in (0, 1):
        np.testing.assert_array_equal(x.argmax(axis).numpy(), want.argmax(axis))
        np.testing.assert_array_equal(x.argmin(axis, keepdim=True).numpy(), np.expand_dims(want.argmin(axis), axis))
        np.testing.assert_array_equal(x.cumsum(axis).numpy(), want.cumsum(axis))
        np.testing.assert_array_equal(x.cumprod(axis).numpy(), want.cumprod(axis))
        np.testing.assert_array_equal(x.cummax(axis)[0].numpy(), np.maximum.accumulate(want, axis))
        np.testing.assert_array_equal(x.sort(axis)[0].numpy(), np.sort(want, axis))
        np.testing.assert_array_equal(x.sort(axis, descending=True)[0].numpy(), -np.sort(-want, axis))
        np.testing.assert_array_equal(x.topk(1, axis)[0].numpy(), want.max(axis, keepdims=True))
    np.testing.assert_array_equal(x.argsort(0).numpy(), want.argsort(0, kind="stable"))
    assert x.argmax().item() == want.argmax() and x.argmin().item() == want.argmin()
    np.testing.assert_array_equal(x.repeat(2, 3).numpy(), np.tile(want, (2, 3)))
    np.testing.assert_array_equal(x.flatten().numpy(), want.reshape(-1))
    np.testing.assert_array_equal(x.reshape(-1, 3).numpy(), want.reshape(-1, 3))
    np.testing.assert_array_equal(x.reshape(3, -1).numpy(), want.reshape(3, -1))
    for got, part in zip(x.split(4, dim=1) + tuple(x.chunk(3, dim=1)), np.split(want, [4], 1) + np.split(want, 3, 1)):
        np.testing.assert_array_equal(got.numpy(), part)
    np.testing.assert_array_equal(x.cat(x, dim=0).numpy(), np.concatenate([want, want]))
    pictures = x.reshape(size, 2, 1, 3)
    weight = np.arange(12, dtype=np.float32).reshape(3, 2, 1, 2)
    at = [np.einsum("bcw,ocw->bo", want.reshape(n, 2, 3)[:, :, i:i + 2], weight[:, :, 0]) for i in (0, 1)]
    convolved = np.stack(at, -1)
    np.testing.assert_array_equal(pictures.conv2d(Tensor(weight)).numpy()[:, :, 0], convolved)
    np.testing.assert_array_equal(pictures.max_pool2d((1, 3)).numpy()[..., 0, 0], want.reshape(n, 2, 3).max(-1))


def test_gradients_through_them():
    values = np.random.default_rng(0).integers(-9, 9, (5, 3)).astype(np.float32)
    for n in (2, 4):
        x = Tensor(values).realize().requires_grad_()
        part = x[:Variable("n", 1, 5).bind(n)]
        least = part.sort(0)[0][0].sum() * 10
        (part.cumsum(0).sum() + least + part.flatten().square().sum() + part.repeat(3, 1).sum()).backward()
        want = np.zeros_like(values)
        want[:n] = np.arange(n, 0, -1)[:, None] + 2 * values[:n] + 3
        want[values[:n].argmin(0), range(3)] += 10
        np.testing.assert_array_equal(x.grad.numpy(), want)


WINDOWS = [dict(kernel=3), dict(kernel=3, stride=2), dict(kernel=2, stride=2), dict(kernel=2, stride=3, dilation=2),
           dict(kernel=3, padding=1), dict(kernel=2, stride=2, padding=(1, 2)), dict(kernel=2, padding=(-1, -1))]


@pytest.mark.parametrize("n", [4, 5, 9])
@pytest.mark.parametrize("options", WINDOWS, ids=str)
def test_windows_over_an_axis_of_a_variable(options, n):
    kernel, rest = options["kernel"], {k: v for k, v in options.items() if k != "kernel"}
    values = np.random.default_rng(0).integers(-9, 9, (2, 3, 9)).astype(np.float32)
    weight = Tensor(np.random.default_rng(1).integers(-3, 3, (4, 3, kernel)).astype(np.float32))
    whole = Tensor(values).realize()
    part, numbers = whole[:, :, :Variable("n", 1, 9).bind(n)], Tensor(values[:, :, :n].copy())
    for use in (lambda x: x.conv2d(weight, **rest), lambda x: x.max_pool2d((kernel,), **rest),
                lambda x: x.avg_pool2d((kernel,), **rest),
                lambda x: x.avg_pool2d((kernel,), **rest, count_include_pad=False)):
        np.testing.assert_array_equal(use(part).numpy(), use(numbers).numpy())
    if not rest:
        np.testing.assert_array_equal(part.unfold(2, kernel, 2).numpy(), numbers.unfold(2, kernel, 2).numpy())
        a, b = whole.requires_grad_(), numbers.requires_grad_()
        for x, y in ((a, a[:, :, :Variable("n", 1, 9).bind(n)]), (b, b)):
            y.conv2d(weight).square().sum().backward()
        np.testing.assert_array_equal(a.grad.numpy()[:, :, :n], b.grad.numpy())
        assert not a.grad.numpy()[:, :, n:].any()


def test_a_recording_with_windows_of_a_variable():
    x, n = Tensor(ROWS[:, 0].copy()).realize(), Variable("n", 0, 10)
    step = TinyJit(lambda t: t.reshape(1, 1, -1).avg_pool2d((3,), stride=2).realize())
    for k in (5, 4, 9, 3, 10):
        want = np.lib.stride_tricks.sliding_window_view(ROWS[:k, 0], 3)[::2].mean(-1)
        np.testing.assert_allclose(step(x[:n.bind(k)]).numpy()[0, 0], want)
    with pytest.raises(JitError, match="n is bound to 2, and the parts of tensors in the step fit for 3..10"):
        step(x[:n.bind(2)])
    with pytest.raises(RuntimeError, match="a kernel of 3 .* does not fit an axis of 2"):
        x[:n.bind(2)].reshape(1, 1, -1).max_pool2d((3,))


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_parts_and_places_of_such_an_axis(n):
    whole, want = Tensor(ROWS).realize(), ROWS[:n]
    part = lambda of: of[:Variable("n", 0, 10).bind(n)]  # noqa: E731: lazy each time: once realised its sizes are numbers
    parts = part(whole).split(4)
    assert len(parts) == -(-n // 4)
    for got, values in zip(parts, np.split(want, range(4, n, 4)), strict=True):
        np.testing.assert_array_equal(got.numpy(), values)
    for shift in (0, 1, -1, 3, -7, 10, 12):
        np.testing.assert_array_equal(part(whole).roll(shift, 0).numpy(), np.roll(want, shift, 0))
    del parts, got
    x, places, columns = part(whole), np.array([[0, n - 1], [-1, -n]], np.int32), np.ones((10, 1), np.int32)
    np.testing.assert_array_equal(x.repeat_interleave(3, 0).numpy(), np.repeat(want, 3, 0))
    np.testing.assert_array_equal(x[Tensor(places)].numpy(), want[places])
    np.testing.assert_array_equal(x[Tensor(places), 1].numpy(), want[places, 1])
    np.testing.assert_array_equal(x[Tensor(places), Tensor([[0, 1]])].numpy(), want[places, [[0, 1]]])
    np.testing.assert_array_equal(x.gather(0, Tensor(places)).numpy(), np.take_along_axis(want, places, 0))
    index = part(Tensor(columns).realize())
    np.testing.assert_array_equal(x.gather(1, index).numpy(), np.take_along_axis(want, columns[:n], 1))
    assert x.shape[0] == Variable("n", 0, 10).bind(n)


def test_a_recording_holds_for_lengths_of_as_many_parts():
    x, n = Tensor(ROWS).realize(), Variable("n", 0, 10)
    sums = TinyJit(lambda t: [part.sum().realize() for part in t.split(4)])
    turn = TinyJit(lambda t: t.roll(3, 0).realize())
    for k in (6, 5, 8, 7):
        np.testing.assert_array_equal([s.item() for s in sums(x[:n.bind(k)])], [ROWS[:4].sum(), ROWS[4:k].sum()])
        np.testing.assert_array_equal(turn(x[:n.bind(k)]).numpy(), np.roll(ROWS[:k], 3, 0))
    for step, k in ((sums, 4), (sums, 9), (turn, 2)):
        with pytest.raises(JitError, match=f"n is bound to {k}, and the parts"):
            step(x[:n.bind(k)])


def test_operators_that_need_numbers_say_so():
    x = Tensor(ROWS).realize()[:Variable("n", 1, 10).bind(4)]
    for call in (lambda: x.chunk(2), lambda: x.split([1, 3]), lambda: x.numel(), lambda: x.rand_like(),
                 lambda: x.T.reshape(1, 2, x.shape[0]).max_pool2d((3,), ceil_mode=True)):
        with pytest.raises(ValueError, match="of a variable"):
            call()


# ---- TinyJit ------------------------------------------------------------------------------------

@pytest.mark.parametrize("realized", [False, True])
def test_an_argument_of_a_variables_shape(realized):
    calls = []

    @TinyJit
    def step(t, scale):
        calls.append(t.shape)
        return (t * scale).sum(1), t + 1

    x, n = Tensor(ROWS.T.copy()).realize(), Variable("n", 1, 10)
    follow = TinyJit(lambda t: t.mean(1))
    for k in (3, 2, 7, 10, 1):
        part = x[:, :n.bind(k)]
        total, more = step(part.realize() if realized else part, Tensor([2.0]))
        np.testing.assert_array_equal(total.numpy(), 2 * ROWS[:k].sum(0))
        np.testing.assert_array_equal(more.numpy(), ROWS[:k].T + 1)
        np.testing.assert_allclose(follow(more).numpy(), ROWS[:k].mean(0) + 1, rtol=1e-6)
    assert len(calls) == 2 and calls[1] == (2, n.bind(2))
    with pytest.raises(JitError, match=r"argument 0 is f32\[2, 4\], recorded with f32\[2, n = 2\]"):
        step(x[:, :4], Tensor([2.0]))
    with pytest.raises(JitError, match="variable n is given twice"):
        both = TinyJit(lambda a, b: (a.sum() + b.sum(),))
        for k in (2, 3):
            both(x[:, :n.bind(k)], x[:1, :n.bind(k)])
        both(x[:, :n.bind(2)].realize(), x[:1, :n.bind(3)].realize())


def test_the_program_of_the_document():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "symbolic-shapes.md").read_text()
    (program,), printed = re.findall(r"```python\n(.*?)```", page, re.DOTALL), io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, {})
    assert printed.getvalue() == "[[3, 33], [1, 21], [21, 91]]\n"


def test_a_value_for_which_the_recording_does_not_fit():
    x, start = Tensor(ROWS).realize(), Variable("start", 0, 10)
    step = TinyJit(lambda s: x[s:s + 1] * 2)
    for i in (0, 4, 9):
        np.testing.assert_array_equal(step(start.bind(i)).numpy(), 2 * ROWS[i:i + 1])
    with pytest.raises(JitError, match="start is bound to 10, and the parts of tensors in the step fit for 0..9"):
        step(start.bind(10))


# ---- decoders -----------------------------------------------------------------------------------

CONTEXT, WIDTH, HEADS, VOCABULARY = 12, 8, 2, 11


def weights(*names):
    random = np.random.default_rng(1)
    shapes = {"embed": (VOCABULARY, WIDTH), "place": (CONTEXT, WIDTH), "qkv": (WIDTH, 3 * WIDTH)}
    return {name: (random.standard_normal(shapes.get(name, (WIDTH, WIDTH))) / 2).astype(np.float32) for name in names}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, mask=0.0):
    """[..., time, WIDTH] of NumPy, by heads."""
    apart = lambda x: x.reshape(*x.shape[:-1], HEADS, -1).swapaxes(-2, -3)
    q, k, v = apart(q), apart(k), apart(v)
    mixed = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(WIDTH // HEADS) + mask) @ v
    return mixed.swapaxes(-2, -3).reshape(*mixed.shape[:-3], -1, WIDTH)


class Gpt:
    """One block as that of tinygrad's GPT-2: a cache of keys and values, [2, batch, CONTEXT, heads, head]."""

    def __init__(self):
        self.weights = weights("embed", "place", "qkv", "out")
        self.embed, self.place, self.qkv, self.out = (Tensor(w).realize() for w in self.weights.values())
        self.one_token = TinyJit(self.forward)

    def forward(self, tokens, start):
        batch, time = tokens.shape
        at = start if isinstance(start, int) else start.val
        where = (0, time) if at == 0 else (start, start + time)
        x = self.embed[tokens] + self.place.shrink((where, None))
        mask = Tensor.full((1, 1, time, start + time), float("-inf")).triu(start + 1) if time > 1 else None
        q, k, v = [part.reshape(batch, time, HEADS, -1) for part in (x @ self.qkv).chunk(3, dim=-1)]
        if not hasattr(self, "cache"):
            self.cache = Tensor.zeros(2, batch, CONTEXT, HEADS, WIDTH // HEADS).contiguous().realize()
        self.cache[:, :, start:start + time].assign(Tensor.stack(k, v)).realize()
        keys, values = self.cache[0][:, 0:start + time], self.cache[1][:, 0:start + time]
        mixed = q.transpose(1, 2).scaled_dot_product_attention(keys.transpose(1, 2), values.transpose(1, 2), mask)
        x = x + mixed.transpose(1, 2).reshape(batch, time, WIDTH) @ self.out
        return (x @ self.embed.T)[:, -1, :].realize()

    def __call__(self, tokens, start):
        return (self.one_token if tokens.shape[1] == 1 else self.forward)(tokens, start)

    def numpy(self, tokens):
        """The logits behind the last of all tokens, without a cache."""
        w, time = self.weights, tokens.shape[1]
        x = w["embed"][tokens] + w["place"][:time]
        q, k, v = np.split(x @ w["qkv"], 3, -1)
        x = x + attention(q, k, v, np.triu(np.full((time, time), -np.inf), 1)) @ w["out"]
        return (x @ w["embed"].T)[:, -1]


@pytest.mark.parametrize("whole", [True, False], ids=["a prompt at once", "a prompt in two parts"])
def test_a_decoder_as_tinygrads_gpt2(whole):
    # The variable may be CONTEXT itself, where no token fits any more: parts of the cache fit for less.
    model, tokens = Gpt(), np.random.default_rng(2).integers(0, VOCABULARY, (2, CONTEXT))
    start = Variable("start_pos", 0, CONTEXT)
    parts = [(0, 5)] if whole else [(0, 3), (3, 5)]
    for begin, end in parts + [(i, i + 1) for i in range(5, CONTEXT)]:
        place = start.bind(begin) if begin else 0
        logits = model(Tensor(tokens[:, begin:end].astype(np.int32)), place)
        np.testing.assert_allclose(logits.numpy(), model.numpy(tokens[:, :end]), rtol=1e-4, atol=1e-5)
    assert model.one_token.captured
    with pytest.raises(JitError, match="start_pos is bound to 12"):
        model(Tensor(tokens[:, :1].astype(np.int32)), start.bind(CONTEXT))


class Decoder:
    """One block as that of tinygrad's Whisper: attention to the text so far, then to what was heard."""

    def __init__(self, heard):
        own, cross = ("query", "key", "value", "out"), ("cross_query", "cross_key", "cross_value")
        self.weights = weights("embed", "place", *own, *cross)
        for name, value in self.weights.items():
            setattr(self, name, Tensor(value).realize())
        self.heard = Tensor(heard).realize()
        self.mask = Tensor.full((CONTEXT, CONTEXT), float("-inf")).triu(1).realize()
        self.cache_k, self.cache_v = (Tensor.zeros(1, CONTEXT, WIDTH).contiguous().realize() for _ in range(2))
        self.one_token = TinyJit(self.forward)

    @staticmethod
    def attend(q, k, v, mask=None):
        q, k, v = (t.reshape(*t.shape[:2], HEADS, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        mixed = q.scaled_dot_product_attention(k, v, mask)
        return mixed.permute(0, 2, 1, 3).flatten(start_dim=2)

    def forward(self, tokens, pos):
        time = tokens.shape[1]
        x = self.embed[tokens] + self.place.shrink(((pos, pos + time), None))
        q, k, v = x @ self.query, x @ self.key, x @ self.value
        k = self.cache_k.shrink((None, (0, pos), None)).cat(k, dim=1)
        v = self.cache_v.shrink((None, (0, pos), None)).cat(v, dim=1)
        left = CONTEXT - pos - time
        self.cache_k.assign(k.pad((None, (0, left), None)).contiguous()).realize()
        self.cache_v.assign(v.pad((None, (0, left), None)).contiguous()).realize()
        x = x + self.attend(q, k, v, self.mask[pos:pos + time, :pos + time]) @ self.out
        x = x + self.attend(x @ self.cross_query, self.heard @ self.cross_key, self.heard @ self.cross_value)
        return (x @ self.embed.T).realize()

    def __call__(self, tokens, pos):
        return (self.one_token if tokens.shape[1] == 1 else self.forward)(tokens, pos)

    def numpy(self, tokens, heard):
        w, time = self.weights, tokens.shape[1]
        x = w["embed"][tokens] + w["place"][:time]
        mask = np.triu(np.full((time, time), -np.inf), 1)
        x = x + attention(x @ w["query"], x @ w["key"], x @ w["value"], mask) @ w["out"]
        x = x + attention(x @ w["cross_query"], heard @ w["cross_key"], heard @ w["cross_value"])
        return x @ w["embed"].T


def test_a_decoder_as_tinygrads_whisper():
    random = np.random.default_rng(3)
    heard = random.standard_normal((1, 7, WIDTH)).astype(np.float32)
    tokens = random.integers(0, VOCABULARY, (1, CONTEXT))
    model, length = Decoder(heard), Variable("self_attn_cache_len", 0, CONTEXT)
    for begin, end in [(0, 4)] + [(i, i + 1) for i in range(4, CONTEXT)]:
        logits = model(Tensor(tokens[:, begin:end].astype(np.int32)), length.bind(begin) if begin else 0)
        want = model.numpy(tokens[:, :end], heard)[:, begin:end]
        np.testing.assert_allclose(logits.numpy(), want, rtol=1e-4, atol=1e-5)
    assert model.one_token.captured
