"""The `outboard` program of a wheel: gateway, workers, keys and bills on this machine, as on any other."""
import os
import pathlib
import sys


def path() -> pathlib.Path | None:
    """Where it is: in the wheel, or as OUTBOARD_BIN says. None if it came with neither."""
    named = os.environ.get("OUTBOARD_BIN")
    found = pathlib.Path(named) if named else pathlib.Path(__file__).parent / "bin" / "outboard"
    return found if found.is_file() and os.access(found, os.X_OK) else None


def main() -> None:
    """Becomes the program."""
    program = path()
    if program is None:
        sys.exit("outboard: this package was built without the program; install a wheel, or the program by "
                 "scripts/debian or scripts/setup, and name it by OUTBOARD_BIN (/usr/bin/outboard, build/bin/outboard)")
    os.execv(program, [str(program), *sys.argv[1:]])
