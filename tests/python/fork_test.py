"""fork and multiprocessing: a child of a program with a session uses none of it, says so, and ends."""
import multiprocessing
import os
import subprocess
import sys

import pytest

import outboard
from outboard import Tensor


def run(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(autouse=True, scope="module")
def connected():
    assert Tensor.ones(2).sum().item() == 2


def child(call) -> int:
    """The exit code of a fork's child that does `call`."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if call() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_that_touches_no_tensor():
    kept = Tensor.ones(10).contiguous().realize()
    assert child(lambda: True) == 0
    assert kept.numpy().shape == (10,), "the parent's buffers are still there"


def test_a_child_that_drops_its_parents_tensors_releases_nothing():
    kept = [Tensor.ones(10).contiguous().realize() for _ in range(3)]

    def drop():
        kept.clear()
        return True

    assert child(drop) == 0
    assert [x.numpy().shape for x in kept] == [(10,)] * 3


def test_a_child_that_computes_is_told_what_to_do():
    def compute():
        try:
            Tensor.ones(3).sum().item()
        except outboard.Error as error:
            return "spawn" in str(error)

    assert child(compute) == 0
    assert child(lambda: (Tensor.ones(3) + 1).shape == (3,)) == 0, "to write a graph is no matter of a session"


def test_a_child_that_ends_as_a_program_does():
    assert run("""
import os, sys
from outboard import Tensor
x = Tensor.ones(5).contiguous().realize()
x.numpy()
pid = os.fork()
if pid == 0:
    sys.exit(0)          # with all that the interpreter does at its end
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(x.numpy().shape)
""") == "(5,)\n"


def test_a_fork_before_the_first_value_is_a_program_of_its_own():
    assert run("""
import os
from outboard import Tensor
x = Tensor.ones(2) + 1
pid = os.fork()
y = x.tolist()
assert y == [2, 2], y
if pid != 0:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    print(y)
""") == "[2.0, 2.0]\n"


def test_the_parent_may_end_before_its_child():
    out = run("""
import os, sys, time
from outboard import Tensor
Tensor.ones(1).item()
read, write = os.pipe()
if os.fork() == 0:
    os.close(write)
    os.read(read, 1)     # until the parent is gone
    os._exit(0)
print("parent done")
""")
    assert out == "parent done\n"


def squares(count: int) -> list[float]:
    return (Tensor.arange(count) * Tensor.arange(count)).tolist()


def numbers(count: int) -> list[int]:
    return [n * n for n in range(count)]


def test_a_pool_of_forked_loaders():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(numbers, [2, 3]) == [[0, 1], [0, 1, 4]]
    assert Tensor.ones(2).sum().item() == 2


def test_spawn_computes():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(squares, [3]) == [[0, 1, 4]]
