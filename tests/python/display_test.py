"""What things say of themselves: repr computes nothing and asks nobody."""
import subprocess
import sys

import pytest

import outboard
from outboard import Context, Device, GlobalCounters, Session, Tensor, TinyJit, Variable, dtypes, helpers, nn


def test_a_tensors_repr_computes_nothing():
    with Session() as session:
        x = Tensor.ones(2, 3) + 1
        before = session.stats
        assert "(2, 3)" in repr(x) and "float32" in repr(x) and "not computed" in repr(x)
        assert "(2, 3)" in x._repr_html_() and "not computed" in x._repr_html_()
        x.realize()
        assert "not computed" not in repr(x)
        after = session.stats
        assert (after.steps, after.round_trips) == (before.steps + 1, before.round_trips)


def test_a_repr_connects_to_nobody():
    program = """
from outboard import Tensor
print(repr(Tensor.ones(3)), Tensor.ones(3)._repr_html_())
"""
    out = subprocess.run([sys.executable, "-c", program], env={"CLOUD": "1", "CLOUD_HOST": "127.0.0.1:1", **_paths()},
                         capture_output=True, text=True, timeout=60)
    assert out.returncode == 0 and "(3,)" in out.stdout, out.stderr


def _paths():
    import os
    return {name: os.environ[name] for name in ("PYTHONPATH", "PATH") if name in os.environ}


def everything():
    """One of each public class, and of what stands behind a public function."""
    x, n = Tensor([1.0, 2.0]).realize(), Variable("n", 1, 3)
    yield from (x, x + 1, x.fetch(), n, n.bind(2), n.bind(2) + 1, dtypes.float, dtypes)
    yield from (Device, Device["CPU"], GlobalCounters)
    yield from (Context(DEBUG=1), TinyJit(lambda x: x), helpers.DEBUG, helpers.TRAINING, helpers.DEFAULT_FLOAT)
    yield from (helpers.Timing("a"), outboard.tqdm([1], disable=True), outboard.trange(3, disable=True))
    yield from (outboard.progress(3, disable=True), Session.current(), Session.current().stats)
    yield from (Session.current()._connection, outboard.checkpoint.Saved(1, 2))
    for name in nn.__all__:
        if name not in ("datasets", "optim", "state"):
            sizes = {"Embedding": (3, 4), "Linear": (3, 4), "LSTMCell": (3, 4), "GroupNorm": (2, 4)}
            made = getattr(nn, name)(*sizes.get(name, (3, 4, 5) if "Conv" in name else (4,)))
            yield made
    sgd = nn.optim.SGD([x], momentum=0.5)
    yield from (sgd, nn.optim.Adam([x]), nn.optim.Muon([Tensor.ones(2, 2).realize()]), nn.optim.LAMB([x]))
    yield from (nn.optim.OptimizerGroup(sgd), sgd._rule)
    source = Tensor(b"abc")
    yield from (nn.state.TensorIO(source), outboard._core.Bytes(source), outboard._core.Jit())


def test_everything_says_what_it_is():
    for thing in everything():
        for text in (repr(thing), str(thing)):
            assert " object at 0x" not in text and len(text) < 300, text


@pytest.mark.parametrize("make, text", [
    (lambda: nn.Linear(3, 4), "Linear(3, 4)"), (lambda: nn.Linear(3, 4, bias=False), "Linear(3, 4, bias=False)"),
    (lambda: nn.Conv2d(4, 8, 3, stride=2, groups=2, padding=1), "Conv2d(4, 8, (3, 3), stride=2, padding=1, groups=2)"),
    (lambda: nn.Conv1d(4, 8, 3, bias=False), "Conv2d(4, 8, (3,), bias=False)"),
    (lambda: nn.ConvTranspose2d(4, 8, 3, groups=2), "ConvTranspose2d(4, 8, (3, 3), groups=2)"),
    (lambda: nn.ConvTranspose2d(4, 8, 3, stride=2, output_padding=1),
     "ConvTranspose2d(4, 8, (3, 3), stride=2, output_padding=1)"),
    (lambda: nn.BatchNorm(5), "BatchNorm(5, eps=1e-05, momentum=0.1)"),
    (lambda: nn.BatchNorm(5, affine=False), "BatchNorm(5, eps=1e-05, momentum=0.1, affine=False)"),
    (lambda: nn.GroupNorm(2, 4), "GroupNorm(2, 4, eps=1e-05)"),
    (lambda: nn.InstanceNorm(4), "InstanceNorm(4, eps=1e-05)"),
    (lambda: nn.LayerNorm((2, 3)), "LayerNorm((2, 3), eps=1e-05)"),
    (lambda: nn.LayerNorm2d(3, elementwise_affine=False), "LayerNorm2d((3,), eps=1e-05, elementwise_affine=False)"),
    (lambda: nn.RMSNorm(3), "RMSNorm(3, eps=1e-06)"), (lambda: nn.Embedding(3, 4), "Embedding(3, 4)"),
    (lambda: nn.LSTMCell(3, 4), "LSTMCell(3, 4)"), (lambda: Context(DEBUG=1, BEAM=2), "Context(DEBUG=1, BEAM=2)"),
    (lambda: helpers.JIT, "<ContextVar JIT=1>"), (lambda: outboard.trange(3, disable=True), "<trange 0 of 3>"),
    (lambda: nn.optim.SGD([Tensor.ones(2).realize()]), "<LARS of 1 parameters>")])
def test_what_is_told(make, text):
    assert repr(make()) == text


def test_a_future_says_whether_it_has_arrived():
    future = (Tensor([1.0]) + 1).fetch()
    assert repr(future) in ("<TensorFuture, on its way>", "<TensorFuture, arrived>")
    future.wait()
    assert repr(future) == "<TensorFuture, arrived>"


def test_a_session_shows_device_cost_and_time():
    with Session() as session:
        Tensor.ones(1).item()
        html = session._repr_html_()
        for fact in ("device", "cost", "time", "$", "open"):
            assert fact in html and fact in repr(session)
        assert session.stats.device.split()[0].rstrip(":,") in html
    assert "closed" in session._repr_html_()
