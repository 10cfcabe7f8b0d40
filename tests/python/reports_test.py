"""What a program tells `outboard sweep`, and what is read of a sweep afterwards."""
import json
import os
import subprocess
import sys
import time

import pytest

import outboard
from outboard import sweep


def lines_of(program: str, **environment: str) -> list[str]:
    """What the program writes to a sweep."""
    read, write = os.pipe()
    try:
        os.set_inheritable(write, True)
        subprocess.run([sys.executable, "-c", program], check=True, pass_fds=[write], timeout=120,
                       env={**os.environ, **environment, "OUTBOARD_REPORT_FD": str(write)})
    finally:
        os.close(write)
    with os.fdopen(read) as lines:
        return lines.read().splitlines()


PROGRAM = """if True:
    import outboard
    from outboard import Tensor
    outboard.report(0, loss=0.1, acc=1)
    outboard.report(1, loss=Tensor([2.0]).sum())
    outboard.report(2, loss=float("nan"))
"""


@pytest.fixture
def gateway(tmp_path):
    """The address of a gateway at the default price, of one line."""
    ready = tmp_path / "ready"
    server = subprocess.Popen([os.environ["OUTBOARD_BIN"], "serve", "--listen", f"unix:{tmp_path}/s", "--no-auth",
                               "--data", str(tmp_path / "data"), "--ready-file", str(ready)])
    until = time.monotonic() + 60
    while not ready.exists() and server.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert ready.exists()
    yield f"unix:{tmp_path}/s"
    server.terminate()
    server.wait()


def test_reports_have_step_values_and_cost(gateway):
    *lines, last = lines_of(PROGRAM, CLOUD="1", CLOUD_HOST=gateway)
    words = [line.partition(" cost_micro_usd=") for line in lines]
    assert [said for said, _, _ in words] == ["step=0 loss=0.10000000000000001 acc=1", "step=1 loss=2", "step=2 loss=nan"]
    costs = [int(cost) for _, _, cost in words] + [int(last.removeprefix("cost_micro_usd="))]
    assert costs[0] == 0 and costs == sorted(costs) and costs[-1] > 0, "the session's end has the bill"


def test_a_private_worker_is_at_no_price():
    lines = lines_of(PROGRAM)
    assert len(lines) == 4 and all(line.endswith("cost_micro_usd=0") for line in lines)


def test_children_do_not_report_in_its_name():
    assert lines_of("import subprocess, sys, outboard; outboard.report(0, loss=1); "
                    "subprocess.run([sys.executable, '-c', 'import outboard; outboard.report(1, loss=2)'], check=True)"
                    ) == ["step=0 loss=1 cost_micro_usd=0"]


def test_without_a_sweep_nothing_is_computed():
    class NeverAsked:
        def __float__(self):
            raise AssertionError("somebody asked")

    outboard.report(0, loss=NeverAsked())
    with pytest.raises(ValueError, match="step -1"):
        outboard.report(-1)


@pytest.fixture
def finished(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTBOARD_DATA", str(tmp_path))
    subprocess.run([os.environ["OUTBOARD_BIN"], "sweep", "-p", "a=1,2", "-p", "b=0.001,1", "--", "sh", "-c",
                    "echo step=3 loss={a}{b}"], check=True, capture_output=True, timeout=120)


def test_results_are_rows(finished):
    rows = sweep.results()
    assert [row["parameters"] for row in rows] == [{"a": a, "b": b} for a in "12" for b in ("0.001", "1")]
    assert [(row["state"], row["step"], row["best_loss"]) for row in rows[1::2]] == [("done", 3, 11), ("done", 3, 21)]
    assert sweep.results(os.listdir(os.path.join(os.environ["OUTBOARD_DATA"], "sweeps"))[0]) == rows
    assert json.dumps(rows)


def test_no_sweep(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTBOARD_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no sweep in"):
        sweep.results()


def test_a_sweep_that_is_not_there(finished):
    with pytest.raises(FileNotFoundError, match="there is no sweep x in .*outboard sweep ls"):
        sweep.results("x")


def test_as_a_program_it_warns_of_nothing(tmp_path):
    run = [sys.executable, "-W", "error", "-m", "outboard.sweep"]
    environment = {**os.environ, "OUTBOARD_DATA": str(tmp_path)}
    help_ = subprocess.run([*run, "--help"], capture_output=True, text=True, timeout=120, env=environment)
    assert (help_.returncode, help_.stderr) == (0, "")
    assert help_.stdout.startswith("usage: python -m outboard.sweep")
    # One line says what is wrong.
    picture = subprocess.run([*run, "plot", str(tmp_path / "a.png")], capture_output=True, text=True, timeout=120,
                             env=environment)
    assert picture.returncode == 1 and picture.stdout == ""
    assert picture.stderr.count("\n") == 1 and picture.stderr.startswith("python -m outboard.sweep: ")


def test_it_is_an_attribute_of_the_package():
    said = subprocess.run([sys.executable, "-c", "import sys, outboard; print('outboard.sweep' in sys.modules); "
                           "print(outboard.sweep.results.__name__, outboard.sweep.report is outboard.report); "
                           "print(hasattr(outboard, 'sweeps'))"], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.splitlines() == ["False", "results True", "False"]


def test_a_picture(finished, tmp_path):
    pytest.importorskip("matplotlib")
    sweep.plot(str(tmp_path / "sweep.png"))
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no trial has reported a finite accuracy"):
        sweep.plot(str(tmp_path / "other.png"), metric="accuracy")


def test_without_matplotlib_the_error_says_what_to_install(finished, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"outboard\[plot\]"):
        sweep.plot("unused.png")
