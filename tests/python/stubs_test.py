"""What editors and type checkers are told: the generated stub names all that the module has, with signatures."""
import ast
import importlib.resources
import inspect

import outboard
from outboard import _core

HIDDEN = {"onnx", "set_error_classes", "set_package_folder"}


def stub() -> ast.Module:
    return ast.parse((importlib.resources.files(outboard) / "_core.pyi").read_text())


def names(body: list[ast.stmt]) -> set[str]:
    found = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets)
    return found


def test_all_of_the_module():
    assert {name for name in vars(_core) if not name.startswith("_")} - names(stub().body) == HIDDEN


def test_all_of_tensor():
    tensor = next(node for node in stub().body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    assert {name for name in vars(outboard.Tensor) if not name.startswith("_")} <= names(tensor.body)
    untyped = [node.name for node in tensor.body if isinstance(node, ast.FunctionDef) and node.returns is None]
    assert not untyped


def test_the_package_says_that_it_is_typed():
    assert (importlib.resources.files(outboard) / "py.typed").is_file()
    assert inspect.getdoc(outboard)
    for name in outboard.__all__:
        assert getattr(outboard, name) is not None
