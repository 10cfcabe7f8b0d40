"""A gateway that finds that another one has taken its turn on the data folder ends, with exit code 1, so that whoever
started it sees a failure (docs/decisions/129-turns-of-a-folder.md). Its lock keeps a second one out where there is one
kernel; here the turn is taken as by a machine that does not share it."""
import contextlib
import os
import sqlite3
import subprocess
import time

import pytest

import outboard
from outboard import Session, Tensor


def test_a_gateway_that_was_replaced_ends_with_1(tmp_path):
    ready, log = tmp_path / "ready", tmp_path / "log"
    with open(log, "wb") as out:
        gateway = subprocess.Popen(
            [os.environ["OUTBOARD_BIN"], "serve", "--listen", "127.0.0.1:0", "--no-auth", "--data", tmp_path / "data",
             "--ready-file", ready], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        for _ in range(600):
            if ready.exists():
                break
            assert gateway.poll() is None, log.read_text()
            time.sleep(0.1)
        with contextlib.closing(sqlite3.connect(tmp_path / "data/outboard.db", timeout=10)) as books, books:
            assert books.execute("UPDATE gateway_turn SET number = number + 1").rowcount == 1
        with pytest.raises(outboard.Error):  # its first write finds the turn over
            with Session(ready.read_text().split()[0]):
                for _ in range(100):
                    Tensor([1.0]).realize().item()
                    time.sleep(0.1)
        assert gateway.wait(timeout=60) == 1, log.read_text()
    finally:
        gateway.kill()
    assert "event=gateway_replaced" in log.read_text()
