"""What things say of themselves: repr computes nothing and asks nobody."""
import subprocess
import sys

from outboard import Session, Tensor


def test_a_tensors_repr_computes_nothing():
    with Session() as session:
        x = Tensor.ones(2, 3) + 1
        before = session.stats
        assert "(2, 3)" in repr(x) and "f32" in repr(x) and "not computed" in repr(x)
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


def test_a_session_shows_device_cost_and_time():
    with Session() as session:
        Tensor.ones(1).item()
        html = session._repr_html_()
        for fact in ("device", "cost", "time", "$", "open"):
            assert fact in html and fact in repr(session)
        assert session.stats.device.split()[0].rstrip(":,") in html
    assert "closed" in session._repr_html_()
