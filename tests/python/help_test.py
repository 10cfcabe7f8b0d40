"""help() has words for whatever a program sees, and not only its signature."""
import inspect
import re

import pytest

import outboard
from outboard import Tensor, nn


def words_of(name: str, thing) -> str:
    """The docstring without the lines of signatures that the bindings write ahead of it."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    signature = re.compile(rf"^(\d+\. )?`*{re.escape(name)}\(|^Overloaded function")
    return "\n".join(line for line in lines if line.strip() and not signature.match(line))


def public(owner):
    return [name for name in dir(owner) if not name.startswith("_")]


@pytest.mark.parametrize("owner", [Tensor, outboard.TensorFuture, outboard.Variable, outboard.Session,
                                   outboard.dtypes, nn.optim.Optimizer, type(outboard.GlobalCounters)],
                         ids=lambda owner: owner.__name__)
def test_each_function_of_a_class_has_words(owner):
    functions = [name for name in public(owner)
                 if callable(inspect.getattr_static(owner, name)) or isinstance(inspect.getattr_static(owner, name),
                                                                                (property, staticmethod, classmethod))]
    assert functions
    assert [name for name in functions if not words_of(name, getattr(owner, name))] == []
    assert words_of(owner.__name__, owner) or owner is type(outboard.GlobalCounters)


def test_each_name_of_the_package_has_words():
    assert [name for name in outboard.__all__ if not words_of(name, getattr(outboard, name))] == []


def test_of_tensors_it_says_what_fits_and_what_an_error_is():
    for word in ("broadcast", "float32", "InvalidArgument", "docs/operators.md"):
        assert word in Tensor.__doc__
