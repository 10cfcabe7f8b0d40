"""A package that is built for another Python says so; Python itself would speak of a circular import."""
import pathlib
import shutil
import subprocess
import sys

import pytest

import outboard

PACKAGE = pathlib.Path(outboard.__file__).parent
MODULE = next(PACKAGE.glob("_core.*.so"))
THIS = "%d.%d" % sys.version_info[:2]
ANOTHER = "_core.cpython-39-x86_64-linux-gnu.so"


def imported(folder: pathlib.Path, modules: dict[str, pathlib.Path | None]) -> subprocess.CompletedProcess:
    """Imports a copy of the package whose compiled modules are these: links to files, or empty files."""
    package = folder / "outboard"
    # Not by links: Python would find the module beside the file that a link shows.
    shutil.copytree(PACKAGE, package,
                    ignore=lambda _, names: [n for n in names if n.startswith(("_core.", "__py", "bin"))])
    for name, target in modules.items():
        (package / name).symlink_to(target) if target else (package / name).touch()
    return subprocess.run([sys.executable, "-c", "import outboard"], cwd=folder, env={"PYTHONPATH": str(folder)},
                          capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name, built_for", [(ANOTHER, "3.9"), ("_core.cpython-399-x86_64-linux-gnu.so", "3.99")])
def test_a_module_for_another_python(tmp_path, name, built_for):
    result = imported(tmp_path, {name: None})
    assert result.returncode == 1
    assert f"is built for Python {built_for}, and this is Python {THIS}" in result.stderr, result.stderr
    assert f"scripts/wheel python{THIS}" in result.stderr and "circular" not in result.stderr


def test_no_module(tmp_path):
    result = imported(tmp_path, {})
    assert result.returncode == 1 and "there is no compiled module" in result.stderr and "circular" not in result.stderr


def test_a_module_for_this_python_beside_another(tmp_path):
    result = imported(tmp_path, {ANOTHER: None, MODULE.name: MODULE})
    assert result.returncode == 0, result.stderr


def test_a_module_that_cannot_be_loaded_keeps_its_own_error(tmp_path):
    result = imported(tmp_path, {MODULE.name: None})
    assert result.returncode == 1 and "file too short" in result.stderr, result.stderr
    assert "is built for" not in result.stderr
