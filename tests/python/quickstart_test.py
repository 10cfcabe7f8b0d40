"""docs/quickstart.md, line by line: what its blocks do on a port and in a folder of the test's own, and what they print."""
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "quickstart.md").read_text()
# (language, text) of each block that has a language; those without one are the installation.
BLOCKS = re.findall(r"```(sh|text|python)\n(.*?)```", PAGE, re.DOTALL)


def expected_after(command: str) -> list[str]:
    """The lines of the text block that follows the shell block with `command`."""
    for (language, text), (following, lines) in zip(BLOCKS, BLOCKS[1:]):
        if language == "sh" and command in text:
            assert following == "text", command
            return lines.splitlines()
    raise AssertionError(f"no block with {command}")


def check(command: str, output: str, port: int) -> None:
    """The page shows all that is printed, and nothing else."""
    patterns = []
    for line in expected_after(command):
        pattern = re.sub(r"<[^>]*>", ".+", re.escape(line.replace("6667", str(port))).replace("\\ ", " +"))
        assert re.search(f"^{pattern}$", output, re.MULTILINE), f"{line!r} is not in\n{output}"
        patterns.append(pattern)
    for line in output.splitlines():
        assert any(re.fullmatch(pattern, line) for pattern in patterns), f"the page does not show {line!r}"


@pytest.fixture
def place(tmp_path):
    """A folder with the page's program, and an environment whose home is there."""
    programs = [text for language, text in BLOCKS if language == "python"]
    assert len(programs) == 1
    (tmp_path / "line.py").write_text(programs[0])
    folders = [os.path.dirname(os.environ["OUTBOARD_BIN"]), os.path.dirname(sys.executable), "/usr/bin", "/bin"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CLOUD", "OUTBOARD_"))}
    environment |= {"HOME": str(tmp_path), "PATH": ":".join(folders)}
    return tmp_path, environment


def test_every_line(place):
    folder, environment = place
    shell = [text for language, text in BLOCKS if language == "sh"]
    assert shell[0] == "outboard up\n" and len(shell) == 5
    up = subprocess.Popen(["outboard", "up", "--port", "0"], cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    try:
        # The log and what the command prints come on one stream here.
        ready = next(line for line in up.stdout if line.startswith("outboard ready "))
        port = int(ready.rsplit(":", 1)[1])
        metrics = next(line for line in up.stdout if line.startswith("metrics are at "))
        check("outboard up", ready + metrics, port)
        # One shell, as in one terminal; what each block prints ends with a line of ours.
        script = "".join(f"{block}echo END\n" for block in shell[1:]).replace("6667", str(port))
        result = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment, timeout=120,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert result.returncode == 0, result.stdout
        outputs = result.stdout.split("END\n")
        for block, output in zip(shell[1:], outputs):
            check(block, output, port)
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=60) == 0
