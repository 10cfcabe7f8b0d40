"""Sessions with names at a real gateway: left and entered again by other processes, stopped by a cap, forked, listed; and
docs/sessions.md, as written."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import outboard
from outboard import Session, Tensor

# What each process of a test does; the gateway is in its environment.
TRAIN = """
import sys
import outboard
from outboard import Session, Tensor, TinyJit, Context

name, steps, how, devices = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 1
try:
    session = Session.attach(name)
except outboard.NotFound:
    session = Session(name=name, devices=devices)

with session:
    w, count = Tensor([1.0, 2.0]), Tensor([0])

    @TinyJit
    def step():
        w.assign(w * 2 + 1).realize(count.assign(count + 1))

    kept = outboard.kept()
    if kept:
        w.assign(kept["w"])
        count.assign(kept["count"])
    outboard.keep({"w": w, "count": count})
    for _ in range(steps):
        step()
    print("did", count.item(), *w.tolist(), flush=True)
    if how == "hang":
        sys.stdin.read()
    if how == "interrupt":
        raise KeyboardInterrupt
"""


def after(steps: int) -> list[float]:
    w = [1.0, 2.0]
    for _ in range(steps):
        w = [2 * x + 1 for x in w]
    return w


class Cloud:
    """A gateway with two devices, and two accounts."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = os.environ["OUTBOARD_BIN"]
        self.process = None
        self.up()
        self.keys = [self.run("key", "create", "--account", tenant, "--name", "k") for tenant in ("one", "two")]

    def up(self):
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [self.bin, "up", "--port", "0", "--devices", "2", "--data", self.folder / "data", "--snapshot-every", "5",
             "--ready-file", ready], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        for _ in range(600):
            if ready.exists():
                break
            assert self.process.poll() is None, "outboard up has ended"
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                pass
        self.target = ready.read_text().split()[0]

    def down(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=60) == 0

    def environment(self, account=0) -> dict:
        return os.environ | {"CLOUD": "1", "CLOUD_HOST": self.target, "CLOUD_KEY": self.keys[account]}

    def run(self, *command, account=None, code=0) -> str:
        environment = os.environ if account is None else self.environment(account)
        data = ["--data", self.folder / "data"] if account is None else []
        result = subprocess.run([self.bin, *command, *data], env=environment, capture_output=True, text=True, timeout=60)
        assert result.returncode == code, result.stderr
        return (result.stdout if code == 0 else result.stderr).strip()

    def ps(self, account=0) -> list[dict]:
        return [json.loads(line) for line in self.run("ps", "--json", account=account).splitlines()]

    def program(self, *arguments, account=0) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-c", TRAIN, *map(str, arguments)], env=self.environment(account),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def did(self, *arguments, account=0) -> list[float]:
        out, err = self.program(*arguments, account=account).communicate(timeout=120)
        assert out.startswith("did "), err
        return [float(word) for word in out.split()[1:]]

    def session(self, account=0, **options) -> Session:
        return Session(self.target, self.keys[account], **options)

    def attach(self, name, account=0, **options) -> Session:
        return Session.attach(name, self.target, self.keys[account], **options)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    cloud = Cloud(tmp_path_factory.mktemp("cloud"))
    yield cloud
    cloud.down()


def test_a_session_goes_on_in_another_process(cloud):
    assert cloud.did("run1", 3, "end") == [3, *after(3)]
    for _ in range(100):  # its time counts once a heartbeat of the worker has confirmed it
        [session] = [s for s in cloud.ps() if s["name"] == "run1"]
        if session["cost_micro_usd"] > 0:
            break
        time.sleep(0.1)
    assert not session["has_client"] and session["devices"] == 1 and session["cost_micro_usd"] > 0
    assert cloud.did("run1", 2, "interrupt") == [5, *after(5)]
    assert cloud.did("run1", 0, "end") == [5, *after(5)]
    assert "run1  ended" in cloud.run("stop", "run1", account=0)
    assert not [s for s in cloud.ps() if s["name"] == "run1"]
    assert cloud.did("run1", 1, "end") == [1, *after(1)], "the name is free"
    cloud.run("stop", "run1", account=0)


def test_the_page_does_what_it_says(cloud):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "sessions.md").read_text()
    first, _, forks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for program, said in ((first, "10 steps\n"), (first, "goes on\n20 steps\n"), (forks, "0 [10.0, 10.0, 10.0]\n")):
        result = subprocess.run([sys.executable, "-c", program.replace("fork(3)", "fork(1)")], capture_output=True,
                                text=True, timeout=120, env=cloud.environment())
        assert result.returncode == 0, result.stderr
        assert result.stdout == said
    cloud.run("stop", "run7", account=0)


def test_a_killed_process_leaves_what_was_done(cloud):
    program = cloud.program("run2", 4, "hang")
    assert program.stdout.readline().split()[:2] == ["did", "4"]
    program.kill()
    program.wait()
    assert cloud.did("run2", 1, "end") == [5, *after(5)]
    cloud.run("stop", "run2", account=0)


def test_two_devices_are_left_killed_and_entered_again(cloud):
    assert cloud.did("run11", 3, "end", 2) == [3, *after(3)]
    [session] = [s for s in cloud.ps() if s["name"] == "run11"]
    assert not session["has_client"] and session["devices"] == 2
    assert cloud.did("run11", 2, "interrupt") == [5, *after(5)]
    program = cloud.program("run11", 1, "hang")
    assert program.stdout.readline().split()[:2] == ["did", "6"]
    program.kill()
    program.wait()
    for said in (1, 4):  # 1 is a number like any other
        with pytest.raises(outboard.InvalidArgument, match=f"2 devices, and the client asks for {said}"):
            Session.attach("run11", cloud.target, cloud.keys[0], devices=said)
    assert cloud.did("run11", 1, "end") == [7, *after(7)]
    assert "run11  ended" in cloud.run("stop", "run11", account=0)


def test_what_is_cut_is_found_whole(cloud):
    with cloud.session(name="run12", devices=2, spread="fsdp") as session:
        w = (Tensor.arange(30).reshape(10, 3) * 1.0).contiguous().realize()
        for _ in range(3):
            w.assign(w * 2).realize()
        outboard.keep({"w": w})
        session.detach()
    fork = """
import outboard
w = outboard.kept()["w"]
w.assign(w * 2).realize()
print(w.shape, w.sum().item())
"""
    result = subprocess.run([sys.executable, "-c", fork], capture_output=True, text=True, timeout=120,
                            env=cloud.environment() | {"CLOUD_FORK_OF": "run12"})
    assert result.stdout == "(10, 3) 6960.0\n", result.stderr
    with cloud.attach("run12") as session:
        w = outboard.kept()["w"]
        assert w.shape == (10, 3)
        outboard.keep({"w": w})
        w.assign(w + 1).realize()
        assert w.tolist() == [[24 * r + 8 * c + 1 for c in range(3)] for r in range(10)], "the fork's is its own"
        with cloud.attach("run12"):  # in the middle
            assert outboard.kept()["w"].sum().item() == 29 * 15 * 8 + 30
    assert "run12  ended" in cloud.run("stop", "run12", account=0)


def test_who_enters_a_live_session_ends_its_program(cloud):
    with cloud.session(name="run3") as first:
        w = Tensor([1.0, 2.0]).realize()
        outboard.keep({"w": w})
        assert w.tolist() == [1, 2]
        with cloud.attach("run3") as second:
            assert second.name == "run3" and second.id == first.id
            assert outboard.kept()["w"].tolist() == [1, 2]
        with pytest.raises(outboard.Error, match="another client entered") as raised:
            (w + 1).tolist()
        assert raised.value.code == "ABORTED"
    cloud.run("stop", "run3", account=0)


def test_names_of_others_and_names_that_cannot_be(cloud):
    with cloud.session(name="run4") as session:
        (Tensor.ones(1) + 1).item()
        with pytest.raises(outboard.AlreadyExists, match="outboard stop run4"):
            cloud.session(name="run4")
        for name in ("run4", session.id, "nobody"):
            with pytest.raises(outboard.NotFound) as raised:
                cloud.attach(name, account=1)
            assert raised.value.code == "NOT_FOUND"
            assert "no such session" in cloud.run("stop", name, account=1, code=1)
        assert cloud.ps(account=1) == []
        with cloud.session(account=1, name="run4") as other:
            assert other.id != session.id
            other.close()
        session.close()
    for name in ("", "a" * 65, "a b", "ä", "-x", "0" * 32, "a/b"):
        with pytest.raises(outboard.InvalidArgument):
            cloud.session(name=name)
    for name in ("", "a b", "a" * 65):
        with pytest.raises(outboard.InvalidArgument):
            cloud.attach(name)


def test_what_is_kept_follows_steps_and_survives_its_tensors(cloud):
    with cloud.session(name="run6") as session:
        w, tied = Tensor([1.0, 2.0]).realize(), Tensor([5.0]).realize()
        outboard.keep({"w": w, "again": w, "tied": tied})
        w.assign(w + 1).realize()
        alias = w + 0
        w.assign(w * 3).realize()
        del tied
        assert alias.tolist() == [2, 3]
        session.detach()
    with cloud.attach("run6") as session:
        kept = outboard.kept()
        assert {name: tensor.tolist() for name, tensor in kept.items()} == {"w": [6, 9], "again": [6, 9], "tied": [5]}
        assert outboard.kept()["tied"].tolist() == [5], "again"
        outboard.keep({"only": kept["w"]})
        session.detach()
    with cloud.attach("run6") as session:
        assert list(outboard.kept()) == ["only"]
        session.close()


def test_a_capped_session_goes_on_in_its_program_and_in_another(cloud):
    # 0.50 an hour: some 7 seconds of a device.
    with cloud.session(name="run7", max_cost=0.001) as session:
        w = Tensor([0.0]).realize()
        outboard.keep({"w": w})
        steps = 0
        with pytest.raises(outboard.ResourceExhausted, match="cap of this session"):
            while True:
                w.assign(w + 1).realize()
                steps += 1
                w.item()
        session.resume(max_cost=1.0)
        there = w.item()
        assert there in (steps, steps + 1), "the step that was in flight is done once"
        w.assign(w + 1).realize()
        assert w.item() == there + 1
        session.detach()
    with cloud.attach("run7") as session:
        assert outboard.kept()["w"].item() == there + 1
        session.close()
    with cloud.session() as session, pytest.raises(outboard.Error, match="has not stopped"):
        session.resume()


def test_a_capped_session_is_entered_by_another(cloud):
    with cloud.session(name="run8", max_cost=0.001):
        w = Tensor([0.0]).realize()
        outboard.keep({"w": w})
        with pytest.raises(outboard.ResourceExhausted):
            while True:
                w.assign(w + 1).realize()
                w.item()
    [session] = [s for s in cloud.ps() if s["name"] == "run8"]
    with pytest.raises(outboard.ResourceExhausted):
        with cloud.attach("run8"):
            w = outboard.kept()["w"]
            while True:  # what the cap still allows
                w.assign(w + 1).realize()
                w.item()
    with cloud.attach("run8", max_cost=1.0) as session:
        assert outboard.kept()["w"].item() > 0
        session.close()


def test_forks_begin_alike_and_part(cloud):
    with cloud.session() as session:
        Tensor.manual_seed(7)
        w = Tensor.randn(1000).realize()
        outboard.keep({"w": w})
        w.assign(w * 1.5).realize()
        expected = w.numpy().tobytes()
        sent = session.stats.bytes_up
        [fork] = session.fork(1)
        assert fork.id != session.id
        with fork:
            theirs = outboard.kept()["w"]
            assert theirs.numpy().tobytes() == expected
            assert fork.stats.bytes_up + session.stats.bytes_up - sent < 100_000
            theirs.assign(theirs + 1).realize()
            changed = theirs.numpy().tobytes()
        assert w.numpy().tobytes() == expected != changed
        for count in (0, -1, 1000):
            with pytest.raises(outboard.InvalidArgument):
                session.fork(count)


def test_names_outlive_the_gateway(cloud):
    assert cloud.did("run13", 2, "end", 2) == [2, *after(2)]
    assert cloud.did("run9", 3, "end") == [3, *after(3)]
    for _ in range(100):  # its snapshot is kept within seconds
        [session] = [s for s in cloud.ps() if s["name"] == "run9"]
        if session["state"] in ("parked", "stored"):
            break
    time.sleep(6)
    cloud.down()
    cloud.up()
    assert cloud.did("run9", 1, "end") == [4, *after(4)]
    assert cloud.did("run13", 1, "end") == [3, *after(3)]
    for name in ("run9", "run13"):
        cloud.run("stop", name, account=0)
