"""docs/python.md, tried as written: each of its programs runs by itself."""
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_first_trains():
    assert run(PROGRAMS[0]) == "y = 3.00 x + 1.00\n"


@pytest.mark.parametrize("number", range(1, len(PROGRAMS)))
def test_the_others_run(number):
    run(PROGRAMS[number])


def test_the_table_of_errors_is_so():
    import outboard
    for children, bases in re.findall(r"^\| (`[^|]*) \| (`[^|]*) \|", PAGE, re.MULTILINE):
        names, builtins = re.findall(r"`(\w+)`", children), re.findall(r"`(\w+)`", bases)
        for i, name in enumerate(names):
            base = __builtins__[builtins[min(i, len(builtins) - 1)]]
            assert issubclass(getattr(outboard, name), (outboard.Error, base)), name
            assert base in getattr(outboard, name).__mro__, name
