"""Says why the compiled module is missing. Python's own words for it are a circular import, which it is not."""
import importlib.machinery
import os
import re
import sys

OLDEST = (3, 10)  # pyproject.toml, requires-python


def explained(error: ImportError) -> ImportError:
    """What to raise for an error in importing `outboard._core`: `error` itself unless the module is built for another
    Python, or not built at all."""
    folder = os.path.dirname(os.path.abspath(__file__))
    modules = sorted(name for name in os.listdir(folder) if re.fullmatch(r"_core\..*(so|pyd|dylib)", name))
    this = "%d.%d" % sys.version_info[:2]
    if any(module == "_core" + suffix for module in modules for suffix in importlib.machinery.EXTENSION_SUFFIXES):
        return error  # there is one for this Python, which cannot be loaded
    if not modules:
        return ImportError(f"outboard: there is no compiled module in {folder}: the sources alone cannot be imported; "
                           "build and install them by `pip install .` (docs/python.md)", name="outboard._core")
    built_for = " or ".join(_python_of(module) for module in modules)
    other = f"install a wheel for this one (`scripts/wheel python{this}` builds it, docs/python.md)"
    if sys.version_info < OLDEST:
        other = "another from %d.%d on, with a wheel for it (docs/python.md)" % OLDEST
    return ImportError(f"outboard: this copy is built for Python {built_for}, and this is Python {this}: "
                       f"use that one, or {other}", name="outboard._core")


def _python_of(module: str) -> str:
    """`_core.cpython-311-x86_64-linux-gnu.so` is for 3.11."""
    version = re.search(r"(?:cpython-|cp)(\d)(\d+)", module)
    return f"{version[1]}.{version[2]}" if version else module
