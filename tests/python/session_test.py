"""Sessions of a program: the one that is there, others beside it, and what they say of themselves."""
import gc
import os
import subprocess
import sys
import threading

import pytest

import outboard
from outboard import Session, Tensor


@pytest.fixture(autouse=True, scope="module")
def private_serve():
    """One for all of them: it runs for as long as somebody has a session there."""
    with_all = Session()
    yield
    with_all.close()


def test_the_sessions_tensors_are_computed_there():
    with Session() as session:
        before = session.stats.steps
        assert (Tensor.ones(3) + 1).tolist() == [2, 2, 2]
        assert session.stats.steps == before + 1
    assert session.closed
    assert Tensor.ones(1).item() == 1, "the process's own"


def test_two_at_once_in_one_thread():
    a, b = Session(), Session()
    with a.use():
        x = Tensor([1.0, 2.0]).realize()
    with b.use():
        y = Tensor([10.0]).realize()
        later = y + 1
    with a.use():
        assert (x * 2).tolist() == [2, 4]
    assert later.tolist() == [11], "read outside, computed in b"
    assert (a.stats.steps, b.stats.steps) == (1, 1)
    with pytest.raises(outboard.Error, match="session"), a.use():
        (x + y).tolist()
    a.close()
    b.close()


def test_two_at_once_in_two_threads():
    results = {}

    def work(number: int):
        with Session() as session:
            Tensor.manual_seed(number)
            w = Tensor.zeros(4).contiguous().realize()
            for _ in range(10):
                w = (w + number).realize()
            results[number] = w.tolist(), session.stats.steps

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: values for n, (values, _) in results.items()} == {1: [10] * 4, 2: [20] * 4}
    assert results[1][1] == results[2][1], "each has its own steps"


def test_after_its_end_a_session_says_so():
    with Session() as session:
        lazy = Tensor.ones(3) + 1
        kept = Tensor.ones(2).realize()
    for tensor in (lazy, kept):
        with pytest.raises(outboard.Error, match="session"):
            tensor.tolist()
    del session
    gc.collect()
    with pytest.raises(outboard.Error, match="session"):
        lazy.tolist()


def test_stats_are_numbers_of_that_session():
    with Session() as session:
        empty = session.stats
        Tensor(bytes(1000)).realize().tolist()
        full = session.stats
        assert full.bytes_up > empty.bytes_up + 1000 and full.bytes_down > empty.bytes_down + 1000
        assert full.round_trips > empty.round_trips and full.seconds > 0
        assert full.device and repr(full).startswith(f"<Stats device: {full.device}, ")
    assert session.close().seconds_billed >= 0, "closed twice is closed"


def test_the_current_one():
    assert Session.current().stats.device
    with Session() as session:
        Tensor.ones(1).item()
        assert Session.current().stats.steps == session.stats.steps


def test_closing_the_processs_own_is_no_end():
    Tensor.ones(1).item()
    Session.current().close()
    assert Tensor.ones(1).item() == 1


def test_leaving_in_another_order_is_refused():
    a, b = Session(), Session()
    use_a, use_b = a.use(), b.use()
    use_a.__enter__()
    use_b.__enter__()
    with pytest.raises(RuntimeError, match="last one first"):
        use_a.__exit__(None, None, None)
    use_b.__exit__(None, None, None)
    a._connection.pop_scope()
    a.close()
    b.close()


def test_it_closes_even_where_leaving_fails():
    a, b = Session(), Session()
    a.__enter__()
    b.__enter__()
    with pytest.raises(RuntimeError, match="last one first"):
        a.__exit__(None, None, None)
    assert a.closed
    b.__exit__(None, None, None)
    a._connection.pop_scope()


def test_nobody_there():
    with pytest.raises(ConnectionError) as raised:
        Session("127.0.0.1:1")
    assert isinstance(raised.value, outboard.Unavailable) and "127.0.0.1:1" in str(raised.value)
    assert raised.value.filename == __file__


@pytest.mark.parametrize("host", ["box", "http://box:1", "box:0", "a b:1"])
def test_a_host_that_cannot_be(host):
    with pytest.raises(ValueError):
        Session(host)


@pytest.mark.parametrize("wish", [{"devices": 0}, {"devices": -1}, {"devices": 65}, {"devices": 6, "mesh": (2, 2)},
                                  {"mesh": (2, 0)}, {"devices": 2, "spread": "everywhere"}])
def test_devices_that_cannot_be(wish):
    with pytest.raises(ValueError) as raised:
        Session(**wish)
    assert raised.value.filename == __file__


def test_stages_are_not_there():
    with pytest.raises(NotImplementedError, match="stages"):
        Session(devices=2, spread="stages")


def test_two_devices_are_one_session():
    with Session(devices=2, mesh=(1, 2)) as session:
        x = Tensor.arange(10).float()
        assert ((x * 2).sum().item(), x.max().item()) == (90, 9)
    assert session.closed


def test_a_key_that_cannot_be():
    with pytest.raises(ValueError):
        Session("127.0.0.1:1", key="two words")


def test_lines_for_people_go_where_they_are_wanted():
    program = """
import outboard
lines = []
session = outboard.Session(tell=lines.append)
with session: outboard.Tensor.ones(1).item()
print(lines)
"""
    out = subprocess.run([sys.executable, "-c", program], env={**os.environ, "DEBUG": "1"}, capture_output=True, text=True,
                         timeout=60)
    assert "a session at" in out.stdout and "has ended" in out.stdout, out


def test_a_class_and_memory_that_the_gateway_has_not():
    with pytest.raises(outboard.InvalidArgument, match="no classes of devices"):
        Session(device_class="large")
    with pytest.raises(outboard.InvalidArgument, match='memory is "much"'):
        Session(memory="much")
    with Session(memory=1 << 20) as session, session.use():
        assert (Tensor.ones(2) + 1).tolist() == [2, 2]


def test_an_estimate_is_unknown_until_steps_are_measured():
    with Session() as session:
        x = Tensor.ones(4).contiguous().realize()
        (x + 1).tolist()
        one, = session.estimate(steps=100)
        assert one.seconds is None and one.cost is None
        assert "rates" in one.unknown
        for _ in range(25):
            x = (x + 1).realize()
            x.tolist()
        one, = session.estimate(steps=100)
        assert one.is_measured
        expected, least, most = one.seconds
        assert 0 < least < expected < most


def test_a_recording_session_computes_nothing():
    with Session.recording("unix:/nowhere") as session:
        x = Tensor([1.0, 2.0]).realize()
        assert (x * 5).tolist() == [1.0, 1.0], "made up"
        assert (x * 5).argmax().item() == 0
        assert session.stats.steps > 0
        with pytest.raises(outboard.Unavailable):
            session.estimate()
