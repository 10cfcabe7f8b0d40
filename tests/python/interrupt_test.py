"""Ctrl-C and other signals while the program waits, and what other threads do meanwhile."""
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import outboard
from outboard import Tensor



def run(program: str, **environment: str) -> str:
    """What `program` prints; it must end by itself, and well."""
    result = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True,
                            timeout=100)
    assert result.returncode == 0, result.stderr
    return result.stdout


def interrupt_soon(seconds: float = 0.1) -> threading.Timer:
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def products(count: int) -> Tensor:
    w = Tensor.full((1024, 1024), 1 / 1024).contiguous().realize()
    for _ in range(count):
        w = (w @ w).contiguous()
    return w.sum()


@functools.cache
def products_a_second() -> float:
    """Of products of 1024 x 1024 on this machine, with the kernel compiled."""
    products(1).item()
    start = time.monotonic()
    products(8).item()
    return 8 / (time.monotonic() - start)


def slow(sixteenths: int) -> Tensor:
    """A value that takes about so many sixteenths of a second, whatever the machine."""
    return products(max(sixteenths, int(sixteenths / 16 * products_a_second())))


def test_item_is_interrupted_and_the_value_comes_later():
    Tensor.ones(1).item()  # connected
    value = slow(16)
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        value.item()
    assert not value.fetch().ready(), "it was interrupted, not done"
    assert (Tensor.ones(2) + 1).tolist() == [2, 2], "the next step works"
    assert value.item() == pytest.approx(1024, rel=1e-3), "what was not taken is still there"


def test_a_step_that_waits_for_room_is_interrupted_before_it_happens():
    step = Tensor([0.0]).realize()
    slow(16).realize()
    interrupt_soon()
    done = 0
    with pytest.raises(KeyboardInterrupt):
        while True:
            step.assign(step + 1).realize()
            done += 1
    assert step.item() in (done, done + 1), "each step once"


def test_connecting_is_interrupted():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            outboard.Session(f"127.0.0.1:{silent.getsockname()[1]}")
    assert Tensor.ones(1).item() == 1


def test_waiting_for_a_device_is_interrupted():
    sessions = []
    interrupt_soon(2)
    with pytest.raises(KeyboardInterrupt):
        while True:
            sessions.append(outboard.Session())  # a private worker has some, not many
    for session in sessions:
        session.close()
    with outboard.Session():
        assert Tensor.ones(1).item() == 1


def test_uploading_is_interrupted_and_sent_again():
    numbers = np.random.default_rng(0)
    Tensor.ones(1).item()  # connected
    sent = None
    interrupt_soon(0.5)
    with pytest.raises(KeyboardInterrupt):
        while True:
            values = numbers.random(2_000_000)
            sent = values, Tensor(values)
            sent[1].realize()
    values, tensor = sent
    assert tensor.sum().item() == pytest.approx(values.sum())


def test_other_signals_raise_what_their_handler_raises():
    class Enough(Exception):
        pass

    def stop(*_):
        raise Enough("of this")

    Tensor.ones(1).item()
    value = slow(16)
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(Enough, match="of this"):
            value.item()
    finally:
        signal.signal(signal.SIGALRM, before)
    value.item()


def test_a_handler_that_returns_interrupts_nothing():
    seen = []
    value = slow(16)
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        assert value.item() == pytest.approx(1024, rel=1e-3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_other_threads_go_on_while_one_waits():
    Tensor.ones(1).item()
    value = slow(16).fetch()
    counted = 0
    stop = threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    assert not value.ready()
    before = counted
    value.item()
    progress = counted - before
    stop.set()
    thread.join()
    assert progress > 2, "the other thread stood still while this one waited"


def test_threads_compute_side_by_side():
    results = {}

    def work(number: int):
        x = Tensor([float(number)])
        for _ in range(20):
            x = (x + 1).realize()
        results[number] = x.item()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: n + 20 for n in range(8)}


def test_a_program_that_is_interrupted_ends_at_once():
    program = """
import os, signal, threading
from outboard import Tensor
w = Tensor.full((2048, 2048), 1 / 2048).contiguous().realize()
for _ in range(2000): w = (w @ w).contiguous()
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
w.sum().item()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    _, messages = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 130), messages
    assert "KeyboardInterrupt" in messages


def test_the_interpreter_ends_with_tensors_and_threads_alive():
    assert run("""
import threading
from outboard import Tensor
kept = [Tensor.ones(10).contiguous().realize() for _ in range(10)]
lazy = kept[0] + 1
future = (lazy * 2).sum().fetch()
def forever():
    while True: Tensor.ones(3).sum().item()
threading.Thread(target=forever, daemon=True).start()
print(kept[1].numpy().shape)
""") == "(10,)\n"
