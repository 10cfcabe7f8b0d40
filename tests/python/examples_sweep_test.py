"""Trials in several processes and their plot; and what every program says of itself."""
import numpy as np
import programs
import pytest

from outboard import png


def test_sweep(tmp_path):
    fashion = programs.fashion_files(tmp_path)

    def outcomes(processes):
        said = programs.summary("sweep.py", "--lr", 1e-4, 1e-2, "--width", 16, 32, "--steps", 20, "--batch", 32,
                                "--processes", processes, "--out", tmp_path / "sweep.png", environment=fashion)
        return said, sorted((trial["lr"], trial["width"], trial["loss"], trial["accuracy"]) for trial in said)

    (two, result), (_, alone) = outcomes(2), outcomes(1)
    assert len(result) == 4 and {trial["process"] for trial in two} <= {0, 1}
    assert result == alone  # whichever process it was
    assert result[3][2] < result[1][2]
    pixels = png.read(tmp_path / "sweep.png")
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) >= 4  # paper, ink, a colour for each line


@pytest.mark.parametrize("program", ["beautiful_mnist", "chargpt", "chargpt_generate", "cifar_resnet", "diffusion",
                                     "sweep"])
def test_help(program):
    assert "--seed" in programs.run(f"{program}.py", *(["draw"] if program == "diffusion" else []), "--help").stdout
