"""Whole models: ONNX's simple ones, those that came from PyTorch, and the nine networks with constant weights."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from onnx_suite import DATA, PACKAGE, SHARD, SHARDS, difference, outcomes, read_value

from outboard.onnx import OnnxRunner

LIGHT = PACKAGE / "light"  # Debian's data has only the addresses of the large ones
NAMES = [
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES[SHARD::SHARDS])
def test_light(name: str) -> None:
    run = OnnxRunner(LIGHT / f"light_{name}.onnx")
    inputs = {}
    for what, value in run.graph_inputs.items():  # as ONNX's own runner makes them
        count = np.prod(value.shape)
        inputs[what] = (np.arange(count).reshape(value.shape) / count).astype(np.float32)
    (got,) = run(inputs).values()
    want = read_value((LIGHT / f"light_{name}_output_0.pb").read_bytes(), "tensor")
    assert difference(got, want) is None


# All but those of strings.
SIMPLE = [folder for folder in sorted((DATA / "simple").iterdir()) if not folder.name.startswith("test_strnorm")]
FOLDERS = [*SIMPLE, *sorted((DATA / "pytorch-operator").iterdir()), *sorted((DATA / "pytorch-converted").iterdir())]
HERE = FOLDERS[SHARD::SHARDS]


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    return dict(outcomes(HERE))


@pytest.mark.parametrize("folder", HERE, ids=lambda folder: folder.name)
def test_model(folder: pathlib.Path, results: dict[str, str | None]) -> None:
    assert results[folder.name] is None
