"""ONNX's tests of single operators: all of libonnx-testdata, and those of newer operator sets.

docs/onnx.md lists those that fail, with the reason: a test that fails and is not there fails here, and so does one that
is there and passes.

    OUTBOARD_UPDATE=1 python -m pytest tests/python/onnx_node_test.py      writes the page
    OUTBOARD_SHARD=2/6 ...                                                  every sixth test, from the third on
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
import re

import pytest
from onnx_suite import DATA, PACKAGE, SHARD, SHARDS, outcomes

from outboard.onnx import registry

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "onnx.md"
UPDATE = os.environ.get("OUTBOARD_UPDATE") == "1"
DEBIANS = sorted((DATA / "node").iterdir())
# Those of newer operator sets, from the package `onnx`.
NEWER = sorted(f for f in (PACKAGE / "node").iterdir() if not (DATA / "node" / f.name).exists())
FOLDERS = DEBIANS + NEWER
HERE = FOLDERS[SHARD::SHARDS]

# Not the operator's fault.
REASONS = {
    "test_adam_multiple": "its model lacks the epsilon of 0.01 that its results were computed with",
    "test_bernoulli*": "random numbers: the expected ones are those of NumPy's generator",
    "test_cast_FLOAT_to_BFLOAT16": "the expected numbers are cut off, ours are rounded to the nearest",
    "test_castlike_*BFLOAT16*": "an input has not the shape that the model says",
    "test_strnormalizer*": "tensors here have no type string",
    "test_training_dropout*": "random numbers: the expected ones are those of NumPy's generator",
}
NO_TYPE = "tensors here have no type"


def listed() -> dict[str, str]:
    """The failing tests that the page has, and why."""
    return dict(re.findall(r"^\| `(test_\w+)` \| (.*) \|$", PAGE.read_text(), re.M))


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    return dict(outcomes(HERE))


@pytest.mark.skipif(UPDATE, reason="the page is being written")
@pytest.mark.parametrize("name", [folder.name for folder in HERE])
def test_node(name: str, results: dict[str, str | None]) -> None:
    expected = listed().get(name)
    if expected is None:
        assert results[name] is None
    else:
        assert results[name] is not None, f"it passes, but docs/onnx.md lists it as failing: {expected}"


def test_ratio() -> None:
    listed_here = {folder.name: listed().get(folder.name) for folder in DEBIANS}
    of_our_types = [why for why in listed_here.values() if why is None or NO_TYPE not in why]
    ratio = of_our_types.count(None) / len(of_our_types)
    print(f"onnx_node_pass_ratio {ratio:.4f}")
    assert ratio >= 0.95


@pytest.mark.skipif(not UPDATE, reason="OUTBOARD_UPDATE=1 writes the page")
def test_update(results: dict[str, str | None]) -> None:
    assert SHARDS == 1
    text = PAGE.read_text()
    text = replaced(text, "operators", operators())
    PAGE.write_text(replaced(text, "failing", failures(results)))


def test_operators_listed() -> None:
    assert operators() in PAGE.read_text(), "OUTBOARD_UPDATE=1 writes the page anew"


def replaced(text: str, mark: str, what: str) -> str:
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    return text[: text.index(begin) + len(begin)] + what + text[text.index(end) :]


def operators() -> str:
    lines = []
    for domain, versions in registry.names().items():
        said = [
            f"`{name}`" if since == [1] else f"`{name}` ({', '.join(map(str, since))})"
            for name, since in versions.items()
        ]
        lines.append(f"**{domain or 'ai.onnx'}**, {len(said)}: {', '.join(said)}.\n")
    return "\n".join(lines)


def failures(results: dict[str, str | None]) -> str:
    rows = []
    for name, why in sorted(results.items()):
        if why is None:
            continue
        known = next((text for pattern, text in REASONS.items() if fnmatch.fnmatch(name, pattern)), None)
        rows.append(f"| `{name}` | {(known or why).replace('|', '/')} |\n")
    return "| test | why it fails |\n| --- | --- |\n" + "".join(rows)
