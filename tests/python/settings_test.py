"""Variables and sizes, the device, settings and counters."""
import os
import subprocess
import sys

import numpy as np
import pytest

from outboard import Context, Device, GlobalCounters, Tensor, Variable, dtypes, helpers
from outboard.helpers import ALLOW_TF32, DEBUG, TRAINING, ContextVar, colored, dedup, flatten, getenv, prod, round_up


def test_a_variable_and_its_sizes():
    v = Variable("i", 1, 10)
    b = v.bind(3)
    assert (v.expr, v.vmin, v.vmax) == ("i", 1, 10) and b.unbind() == (v, 3) and b.val == 3
    assert (b + 1).val == 4 and (1 + b).val == 4 and (b * 2 - 1).val == 5 and (7 // b).val == 2 and (b % 2).val == 1
    x = Tensor.arange(10).contiguous().realize()
    assert x.shrink(((0, b),)).sum().item() == 3 and x.shrink(((b - 1, b),)).tolist() == [2]
    for wrong in (0, 11):
        with pytest.raises(ValueError):
            v.bind(wrong)
    with pytest.raises(ValueError):
        Variable("empty", 3, 2)


def test_sizes_compare_by_value_and_expression():
    v, other = Variable("i", 1, 10), Variable("j", 1, 10)
    assert v.bind(3) == v.bind(3) and hash(v.bind(3)) == hash(v.bind(3)) and v.bind(3) + 1 == v.bind(3) + 1
    for different in (v.bind(4), other.bind(3), v.bind(2) + 1, v.bind(3) * 1, 3, "i"):
        assert v.bind(3) != different
    x = Tensor.ones(10)
    assert x[:v.bind(3)].shape == (v.bind(3),) and x[:v.bind(3)].shape != (3,)
    assert (x + v.bind(3)).sum().item() == 40 == (v.bind(3) + x).sum().item() and (v.bind(3) - x).sum().item() == 20
    assert v.bind(3) > 2 and 4 > v.bind(3) >= v.bind(3) and v.bind(3) + 1 <= 4 and not v.bind(3) < other.bind(2)
    for call in (lambda: v.bind(3) < "a", lambda: v.bind(3) + 1.5, lambda: "a" + v.bind(3), lambda: v.bind(3) * 2**70):
        with pytest.raises(TypeError):
            call()
    assert v != 3


@pytest.mark.parametrize("n", [1, 4, 6])
def test_sizes_of_variables_make_tensors(n):
    size = Variable("n", 1, 6, dtype=dtypes.int32).bind(n)
    assert Tensor.arange(size).realize().tolist() == list(range(n))
    assert Tensor.ones(2, size).sum().item() == 2 * n and Tensor.zeros(size).sum().item() == 0
    assert Tensor.full((size, 2), 3).sum().item() == 6 * n and Tensor.full((2, size), 2.5).full_like(1).sum().item() == 2 * n
    x = Tensor.arange(12, dtype="float32").reshape(6, 2).contiguous().realize()
    rows, wanted = x[:size], np.arange(12, dtype=np.float32).reshape(6, 2)[:n]
    for got, value in [(rows.var(0, correction=0), wanted.var(0)), (rows.std(correction=0), wanted.std()),
                       (rows.mean(), wanted.mean())]:
        np.testing.assert_allclose(got.numpy(), value, rtol=1e-5)
    two = Tensor.full((1, 2), 7.0)
    np.testing.assert_array_equal(rows.cat(two, dim=0).sum(0).numpy(), wanted.sum(0) + 7)
    weights = Tensor.arange(1, 20, dtype="float32").reshape(19, 1)[:size + 1]
    joined = np.concatenate([wanted, np.full((1, 2), 7)])
    np.testing.assert_array_equal((rows.cat(two) * weights).sum(0).numpy(), (joined * np.arange(1, n + 2)[:, None]).sum(0))
    both = two.cat(rows, rows)
    np.testing.assert_array_equal(both.max(0).numpy(), np.maximum(wanted.max(0), 7))
    mask = Tensor.full((3, size + 3), float("-inf")).triu(size + 1)
    np.testing.assert_array_equal(mask.exp().sum(1).numpy(), [n + 1, n + 2, n + 3])
    assert Tensor.ones(4, 8).tril(size - 3).sum().item() == np.tril(np.ones((4, 8)), n - 3).sum()


def test_context_sets_and_restores():
    before = DEBUG.value

    @Context(DEBUG=3)
    def inside():
        return DEBUG.value, DEBUG >= 2

    assert inside() == (3, True) and DEBUG == before
    with Context(DEBUG=1), Context(DEBUG=2):
        assert DEBUG == 2
    assert DEBUG == before
    with pytest.raises(KeyError):
        with Context(NO_SUCH_SETTING=1):
            pass
    with pytest.raises(RuntimeError):
        ContextVar("DEBUG", 0)


def run(program: str, **environment: str) -> subprocess.CompletedProcess:
    environment = {**{k: v for k, v in os.environ.items() if k not in ("DEBUG", "BEAM", "NOOPT")}, **environment}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done


COMPUTE = "from outboard import Context, Tensor, helpers\n{}    print(Tensor([1.0, 2.0]).exp().sum().item())\n"


@pytest.mark.parametrize("setting, told", [("DEBUG=2", "GFLOP/s"), ("DEBUG=3", "GFLOP/s"), ("DEBUG=0", None)])
def test_a_context_before_the_worker_starts_reaches_it(setting, told):
    done = run(COMPUTE.format(f"with Context({setting}):\n"))
    assert done.stdout.startswith("10.1") and (told is None or told in done.stderr), done.stderr
    assert told is not None or done.stderr == ""


def test_a_beam_before_the_worker_starts_reaches_it(tmp_path):
    store = tmp_path / "kernels.db"
    program = COMPUTE.format("with Context(BEAM=1):\n").replace("Tensor([1.0, 2.0]).exp()", "Tensor.rand(64, 64)")
    run(program, OUTBOARD_KERNEL_STORE=str(store))
    assert store.stat().st_size > 0


def test_a_setting_that_is_set_back_leaves_the_environment_as_it_was():
    done = run("import os\nfrom outboard import Context, helpers\nseen = []\n"
               "with Context(DEBUG=2, BEAM=3):\n    seen.append((os.environ['DEBUG'], os.environ['BEAM']))\n"
               "helpers.NOOPT.value = 1\n"
               "seen.append(tuple(map(os.environ.get, ('DEBUG', 'BEAM', 'NOOPT'))))\nprint(seen)", BEAM="1")
    assert done.stdout == "[('2', '3'), (None, '1', '1')]\n" and done.stderr == ""


@pytest.mark.parametrize("enter", ["with Context(DEBUG=2):\n", "helpers.DEBUG.value = 2\nif True:\n"])
def test_a_context_after_the_worker_started_says_that_it_came_too_late(enter):
    done = run(COMPUTE.format("Tensor([1.0]).sum().item()\n" + enter + "    helpers.DEBUG.value = 3\n"))
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert "DEBUG=2 does not change" in lines[0] and "before the first value" in lines[0]


def test_a_context_that_asks_for_what_is_so_says_nothing():
    done = run(COMPUTE.format("Tensor([1.0]).sum().item()\nwith Context(DEBUG=0, BEAM=0):\n"))
    assert done.stderr == ""


def test_a_context_with_a_cloud_says_whose_setting_it_is():
    done = run("from outboard import Context\nfor _ in range(2):\n    with Context(BEAM=2): pass",
               CLOUD="1", CLOUD_HOST="127.0.0.1:1")
    assert len(done.stderr.splitlines()) == 1 and "BEAM=2" in done.stderr and "owner" in done.stderr


def test_a_setting_of_the_worker_is_a_number():
    with pytest.raises(ValueError):
        with Context(DEBUG="much"):
            pass
    assert DEBUG == 0


@pytest.mark.skipif(not hasattr(Tensor, "dropout"), reason="there are no random tensors yet")
def test_training_is_what_dropout_asks():
    x = Tensor.ones(1000).contiguous().realize()
    assert not TRAINING and x.dropout(0.5).sum().item() == 1000
    with Context(TRAINING=1):
        assert TRAINING and x.dropout(0.5).numpy().min() == 0
    assert not TRAINING


def test_tf32_is_the_programs_setting():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert not ALLOW_TF32
    with Context(ALLOW_TF32=1):
        assert ALLOW_TF32 and (x @ x).tolist() == [[7, 10], [15, 22]]
    assert not ALLOW_TF32
    run("from outboard.helpers import ALLOW_TF32\nassert ALLOW_TF32", ALLOW_TF32="1")


def test_the_device():
    Tensor([1.0]).realize()
    assert Device.DEFAULT == "CPU" and Device.canonicalize("cpu:0") == "CPU"
    assert Device[Device.DEFAULT] is Device["cpu"] and Device["CPU"].device == "CPU"
    Device["CPU"].synchronize()


def test_counters_of_another_session_count_from_0(monkeypatch):
    counters = {"kernels": 100, "device_time_us": 5000}
    monkeypatch.setattr(helpers._core, "session_counters", lambda: dict(counters))
    GlobalCounters.reset()
    counters["kernels"] = 3
    assert GlobalCounters.kernel_count == 3
    counters["kernels"] = 103
    assert GlobalCounters.kernel_count == 103 and GlobalCounters.time_sum_s == 0


def test_counters():
    GlobalCounters.reset()
    assert GlobalCounters.kernel_count == 0
    (Tensor([1.0, 2.0]) * 3).sum().item()
    assert GlobalCounters.kernel_count >= 1 and GlobalCounters.time_sum_s >= 0
    GlobalCounters.reset()
    assert GlobalCounters.kernel_count == 0 and GlobalCounters.time_sum_s == 0


def test_counters_of_operations_and_bytes():
    a, b = Tensor.rand(96, 64).realize(), Tensor.rand(64, 80).realize()
    Device[Device.DEFAULT].synchronize()
    GlobalCounters.reset()
    (a @ b).numpy()
    assert 2 * 96 * 64 * 80 <= GlobalCounters.global_ops < 2.2 * 96 * 64 * 80
    assert GlobalCounters.global_mem == 4 * (96 * 64 + 64 * 80 + 96 * 80)
    GlobalCounters.reset()
    assert GlobalCounters.global_ops == GlobalCounters.global_mem == 0


def test_small_helpers():
    assert prod((2, 3, 4)) == 24 and dedup([1, 2, 1]) == [1, 2]
    assert flatten([[1], [2, 3]]) == [1, 2, 3] and round_up(5, 4) == 8
    assert colored("x", None) == "x" and "x" in colored("x", "RED")
    assert getenv("OUTBOARD_SURELY_NOT_SET", 7) == 7


def test_a_setting_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("OUTBOARD_A_SETTING", "x")
    with pytest.raises(ValueError, match="^OUTBOARD_A_SETTING is 'x': write a whole number, or unset it$"):
        getenv("OUTBOARD_A_SETTING", 0)
    assert getenv("OUTBOARD_A_SETTING", "other") == "x"


def test_import_takes_no_numpy():
    code = "import sys, outboard; assert 'numpy' not in sys.modules, 'numpy'"
    subprocess.run([sys.executable, "-c", code], check=True)
