"""Runs the programs of python/examples as a user does, and makes data for them."""
import gzip
import json
import os
import pathlib
import struct
import subprocess
import sys

import numpy as np

FOLDER = pathlib.Path(__file__).parents[2] / "python/examples"


def run(program, *args, environment=None, code=0, timeout=120):
    """A program to its end, and what it said; its exit code is `code`."""
    done = subprocess.run([sys.executable, FOLDER / program, *map(str, args)], capture_output=True, text=True,
                          env={**os.environ, **(environment or {})}, timeout=timeout)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def summary(program, *args, **options):
    """What a program prints with --json."""
    return json.loads(run(program, *args, "--json", **options).stdout)


def fashion_files(root):
    """Files as those of Fashion-MNIST, of 600 and 500 pictures, the class is where the light is; and the environment."""
    (root / "fashion-mnist").mkdir()
    random = np.random.default_rng(1)
    for part, count in (("train", 600), ("t10k", 500)):
        labels = random.integers(0, 10, count).astype(np.uint8)
        pictures = random.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for picture, label in zip(pictures, labels):
            picture[4 + 10 * (label // 5):][:9, 1 + 5 * (label % 5):][:, :5] += 180
        for name, array in ((f"{part}-images-idx3-ubyte", pictures), (f"{part}-labels-idx1-ubyte", labels)):
            header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            with gzip.open(root / "fashion-mnist" / f"{name}.gz", "wb") as file:
                file.write(header + array.tobytes())
    return {"OUTBOARD_DATASETS": str(root)}
