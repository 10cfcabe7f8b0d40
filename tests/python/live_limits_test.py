"""A training that meets a cap, a quota and the revocation of its key, one after the other. Each time its program is
told what it met, its state is kept, the operator sees to it, and it goes on: with the bits of a training that nobody
disturbed, and charged for exactly the milliseconds of its leases, never beyond its cap."""
import contextlib
import json
import os
import sqlite3
import subprocess
import time

import pytest

import outboard
from outboard import Session, Tensor, TinyJit

STEPS = 60
PRICE = 500_000  # micro-dollars an hour, that of a gateway that is told none


class Cloud:
    """A gateway with two devices, of which an account may hold one."""

    def __init__(self, folder):
        self.data, self.bin = folder / "data", os.environ["OUTBOARD_BIN"]
        ready = folder / "ready"
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [self.bin, "up", "--port", "0", "--devices", "2", "--devices-per-account", "1", "--data", self.data,
                 "--ready-file", ready], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(600):
            if ready.exists():
                break
            assert self.process.poll() is None, "outboard up has ended"
            time.sleep(0.1)
        self.target = ready.read_text().split()[0]

    def run(self, *command) -> str:
        done = subprocess.run([self.bin, *command, "--data", self.data], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def key(self, tenant: str) -> tuple[str, str]:
        """A new one, and its id."""
        before = {key["id"] for key in self.keys()}
        key = self.run("key", "create", "--account", tenant, "--name", "k")
        [id] = {key["id"] for key in self.keys()} - before
        return key, id

    def keys(self) -> list[dict]:
        return [json.loads(line) for line in self.run("key", "ls", "--json").splitlines()]

    def charged(self, tenant: str) -> int:
        """In micro-dollars."""
        return -json.loads(self.run("account", "show", tenant, "--json"))["balance_micro_usd"]

    def due(self, tenant: str) -> int:
        """The same, by the milliseconds of each lease: price * ms / 3,600,000, rounded down once a lease and device."""
        with contextlib.closing(sqlite3.connect(f"file:{self.data}/outboard.db?mode=ro", uri=True)) as books:
            ranges = books.execute(
                "SELECT session, grant_number, device, price_per_hour, from_s * unit_ms, to_s * unit_ms "
                "FROM ledger_entry WHERE tenant = (SELECT id FROM tenant WHERE name = ?) "
                "AND session IS NOT NULL AND use < 2 ORDER BY number", (tenant,)).fetchall()
        until = {}
        for *lease, price, begin, end in ranges:
            assert price == PRICE
            assert begin == until.get(tuple(lease), 0), "a range is charged twice, or left out"
            until[tuple(lease)] = end
        return sum(PRICE * ms // 3_600_000 for ms in until.values())

    def check_bill(self, tenant: str):
        """Between two postings, of which there may be some yet."""
        due = None
        while due != self.due(tenant):
            due = self.due(tenant)
            charged = self.charged(tenant)
        assert charged == due


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.process.terminate()
    assert cloud.process.wait(timeout=60) == 0


class Training:
    """A small model, and where its program is: what a session that is entered again has of it."""

    def __init__(self):
        Tensor.manual_seed(7)
        kept = outboard.kept()
        self.w = kept["w"] if kept else Tensor.randn(8, 8).realize()
        self.momentum = kept["momentum"] if kept else Tensor.zeros(8, 8).contiguous().realize()
        self.count = kept["count"] if kept else Tensor([0]).realize()
        outboard.keep({"w": self.w, "momentum": self.momentum, "count": self.count})

        @TinyJit
        def step():
            x = (self.count.float() + Tensor.arange(64).reshape(8, 8).float()).sin()
            gradient = x.transpose() @ ((x @ self.w).tanh() - x)
            self.momentum.assign(self.momentum * 0.9 + gradient)
            self.w.assign(self.w - self.momentum * 0.01)
            self.count.assign(self.count + 1)
            Tensor.realize(self.w, self.momentum, self.count)

        self.step = step

    def go_on(self, until: int = STEPS, pause_s: float = 0.0) -> bytes:
        while self.count.item() < until:
            self.step()
            time.sleep(pause_s)
        return self.w.numpy().tobytes()


def test_a_training_goes_on_after_a_cap_a_quota_and_a_revocation(cloud, monkeypatch):
    undisturbed_key, _ = cloud.key("two")
    with Session(cloud.target, undisturbed_key):
        undisturbed = Training().go_on()

    # A cap that is used up after two seconds.
    key, key_id = cloud.key("one")
    cap = 2 * PRICE // 3600
    cloud.run("cap", "set", f"{cap / 1e6:.6f}", "--account", "one")
    with Session(cloud.target, key, name="run") as session:
        training = Training()
        with pytest.raises(outboard.ResourceExhausted, match="cap of the account is reached"):
            training.go_on(pause_s=0.3)
        for _ in range(100):  # until what it cost is written
            if cloud.charged("one") > 0:
                break
            time.sleep(0.1)
        assert 0 < cloud.charged("one") <= cap
        cloud.check_bill("one")
        cloud.run("cap", "set", "1", "--account", "one")
        session.resume()
        reached = training.count.item()
        assert 0 < reached < STEPS
        training.go_on(until=reached + 2)
        session.detach()

    # A quota: another session of the account has the device that it may hold.
    other = Session(cloud.target, key, name="other")
    with other:
        Tensor([1.0]).realize().item()
        for setting in ("CLOUD=1", f"CLOUD_HOST={cloud.target}", f"CLOUD_KEY={key}", "CLOUD_QUEUE_S=1"):
            monkeypatch.setenv(*setting.split("=", 1))
        with pytest.raises(outboard.ResourceExhausted, match="its account holds 1"):
            Session.attach("run")
        monkeypatch.undo()
    subprocess.run([cloud.bin, "stop", "other"], check=True, env=os.environ | {"CLOUD_HOST": cloud.target, "CLOUD_KEY": key})

    # A revocation.
    with Session.attach("run", cloud.target, key) as session:
        training = Training()
        assert training.count.item() == reached + 2, "nothing of it was lost"
        training.go_on(until=reached + 3)
        cloud.run("key", "revoke", key_id)
        with pytest.raises(outboard.Unauthenticated):
            training.go_on(pause_s=0.3)
    key, _ = cloud.key("one")
    with Session.attach("run", cloud.target, key) as session:
        training = Training()
        assert reached + 3 <= training.count.item() < STEPS
        assert training.go_on() == undisturbed
        session.close()
    assert cap < cloud.charged("one") < 10_000
    cloud.check_bill("one")
    cloud.run("audit")
