"""Errors: which exceptions of Python they are, and the lines that they name."""
import os
import pickle
import subprocess
import sys
import textwrap
import traceback

import pytest

import outboard
from outboard import Tensor

CHILDREN = {"InvalidArgument": ValueError, "InvalidIndex": IndexError, "CheckFailed": AssertionError,
            "IsADirectory": IsADirectoryError, "OutOfRange": IndexError, "NotFound": LookupError,
            "PermissionDenied": PermissionError, "Unauthenticated": PermissionError, "ResourceExhausted": MemoryError,
            "Unavailable": ConnectionError, "DeadlineExceeded": TimeoutError, "Unimplemented": NotImplementedError}


@pytest.mark.parametrize("name", CHILDREN)
def test_each_is_what_a_python_program_catches(name):
    kind = getattr(outboard, name)
    assert issubclass(kind, outboard.Error) and issubclass(kind, CHILDREN[name])
    assert kind.__module__ == "outboard" and kind.__doc__


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if text in line and "line_of" not in line)


def test_a_wrong_shape_is_told_where_it_is_written():
    def model(x):
        return x.reshape(7)  # the wrong line

    with pytest.raises(ValueError) as raised:
        model(Tensor.ones(2, 3))
    error = raised.value
    assert isinstance(error, outboard.InvalidArgument) and error.code == "INVALID_ARGUMENT"
    assert error.filename == __file__ and error.lineno == line_of("# the wrong line")
    assert f"errors_test.py:{error.lineno}:" in str(error)
    assert traceback.extract_tb(raised.tb)[-1].lineno == error.lineno


def test_what_is_too_large_is_told_where_it_is_read():
    huge = Tensor.ones(1 << 20, 1 << 20)
    with pytest.raises(MemoryError) as raised:
        huge.contiguous().realize()  # too large
    assert raised.value.lineno == line_of("# too large") and isinstance(raised.value, outboard.Error)


def test_a_failure_in_the_cloud_names_the_line_that_wrote_it():
    huge = Tensor.full((1 << 19, 1 << 18), 1.0, dtype="float64").contiguous()  # what fails
    huge.realize()  # where it is sent
    with pytest.raises(MemoryError) as raised:
        (huge + 1)[0, 0].item()  # where it is read
    assert f"sent at errors_test.py:{line_of('# where it is sent')}" in str(raised.value)
    assert f"written at errors_test.py:{line_of('# what fails')}" in str(raised.value)
    assert raised.value.lineno == line_of("# where it is read")


def test_an_error_goes_from_process_to_process():
    with pytest.raises(outboard.InvalidArgument) as raised:
        Tensor.ones(2, 3).reshape(5)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert type(copy) is outboard.InvalidArgument and str(copy) == str(raised.value) and copy.lineno == raised.value.lineno


def test_without_a_gateway(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent("""
        from outboard import Tensor
        x = Tensor.ones(3)
        print(x.sum().item())
    """))
    result = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60,
                            env={**os.environ, "CLOUD": "1", "CLOUD_HOST": "127.0.0.1:1"})
    assert result.returncode == 1
    assert "outboard.Unavailable" in result.stderr and "program.py:4: no gateway answers at 127.0.0.1:1" in result.stderr


def test_a_cloud_variable_that_is_wrong():
    result = subprocess.run([sys.executable, "-c", "import outboard; outboard.Tensor.ones(1).item()"], capture_output=True,
                            text=True, timeout=60, env={**os.environ, "CLOUD": "maybe"})
    assert "outboard.InvalidArgument" in result.stderr and "CLOUD" in result.stderr
