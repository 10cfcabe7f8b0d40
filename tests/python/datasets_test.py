"""Data sets from files made here, of the layouts in which they are distributed."""
import gzip
import io
import os
import struct
import tarfile

import numpy as np
import pytest

from outboard import dtypes, png
from outboard.nn import datasets

RNG = np.random.default_rng(0)


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def digits(tmp_path):
    """A folder of a few digits, half of its files gzipped, and what is in it."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    made = {}
    for name, shape in [("train-images-idx3", (7, 28, 28)), ("train-labels-idx1", (7,)), ("t10k-images-idx3", (3, 28, 28)),
                        ("t10k-labels-idx1", (3,))]:
        made[name] = RNG.integers(0, 256, shape).astype(np.uint8)
        data = idx(made[name])
        if "labels" in name:
            (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(data))
        else:
            (folder / f"{name}-ubyte").write_bytes(data)
    return folder, list(made.values())


def check(split, values):
    for tensor, value in zip(split, values):
        assert tensor.dtype == dtypes.uint8
        np.testing.assert_array_equal(tensor.numpy(), value[:, None] if value.ndim == 3 else value)


def test_mnist(digits, monkeypatch):
    folder, values = digits
    check(datasets.mnist(folder=folder), values)
    check(datasets.mnist(folder=folder.parent), values)
    monkeypatch.setenv("OUTBOARD_DATASETS", str(folder.parent))
    check(datasets.mnist(), values)


def test_what_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTBOARD_DATASETS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte.*OUTBOARD_DATASETS"):
        datasets.mnist()
    with pytest.raises(FileNotFoundError, match="cifar-10-binary.tar"):
        datasets.cifar()
    with pytest.raises(FileNotFoundError, match="PNG"):
        datasets.image_folder(tmp_path)


@pytest.mark.parametrize("data, reason", [(b"", "no IDX"), (b"\0\0\x0d\1\0\0\0\1abcd", "no IDX"), (b"\0\0\x08\3\0\0", "no IDX"),
                                          (b"\0\0\x08\1\0\0\0\5abcd", "4 elements"), (b"\0\0\x08\1\0\0\0\3abcd", "4 elements"),
                                          (b"\0\0\x08\4" + b"\xff" * 16, "0 elements"), (b"\x1f\x8bnothing", "damaged"),
                                          (gzip.compress(b"\0\0\x08\1\0\0\0\1a")[:-9], "cut off")])
def test_damaged_files_are_refused(digits, data, reason):
    folder, _ = digits
    (folder / "train-images-idx3-ubyte").write_bytes(data)
    with pytest.raises(ValueError, match=reason):
        datasets.mnist(folder=folder)


@pytest.mark.skipif(not os.path.isdir(f"{datasets.DEBIAN_FOLDER}/fashion-mnist"), reason="dataset-fashion-mnist is not installed")
def test_fashion_mnist_of_debian(monkeypatch):
    monkeypatch.delenv("OUTBOARD_DATASETS", raising=False)
    images, labels, test_images, test_labels = datasets.mnist(fashion=True)
    assert images.shape == (60000, 1, 28, 28) and labels.shape == (60000,)
    assert test_images.shape == (10000, 1, 28, 28)
    assert np.bincount(test_labels.numpy()).tolist() == [1000] * 10


def cifar_files():
    batches = [RNG.integers(0, 256, (4, 3073)).astype(np.uint8) for _ in range(6)]
    return dict(zip([f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"], batches))


def check_cifar(split, files):
    images, labels, test_images, test_labels = (tensor.numpy() for tensor in split)
    train, test = np.concatenate(list(files.values())[:5]), files["test_batch.bin"]
    np.testing.assert_array_equal(images, train[:, 1:].reshape(-1, 3, 32, 32))
    np.testing.assert_array_equal(labels, train[:, 0])
    np.testing.assert_array_equal(test_images, test[:, 1:].reshape(-1, 3, 32, 32))
    np.testing.assert_array_equal(test_labels, test[:, 0])


def test_cifar_as_a_folder(tmp_path):
    files = cifar_files()
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, batch in files.items():
        (folder / name).write_bytes(batch.tobytes())
    check_cifar(datasets.cifar(folder=tmp_path), files)
    (folder / "data_batch_3.bin").write_bytes(b"\0" * 3072)
    with pytest.raises(ValueError, match="data_batch_3.*3073"):
        datasets.cifar(folder=tmp_path)


@pytest.mark.parametrize("compressed", [False, True])
def test_cifar_as_an_archive(tmp_path, compressed):
    files, out = cifar_files(), io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, batch in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = batch.nbytes
            archive.addfile(member, io.BytesIO(batch.tobytes()))
    data = out.getvalue()
    (tmp_path / ("cifar-10-binary.tar.gz" if compressed else "cifar-10-binary.tar")).write_bytes(
        gzip.compress(data) if compressed else data)
    check_cifar(datasets.cifar(folder=tmp_path), files)


def test_folders_of_pictures(tmp_path):
    pictures = RNG.integers(0, 256, (5, 8, 6, 3)).astype(np.uint8)
    for i, (name, picture) in enumerate(zip(["dog", "cat", "dog", "cat", "ant"], pictures)):
        (tmp_path / name).mkdir(exist_ok=True)
        png.write(tmp_path / name / f"{i}.png", picture)
    images, labels, classes = datasets.image_folder(tmp_path)
    assert classes == ["ant", "cat", "dog"] and labels.tolist() == [0, 1, 1, 2, 2]
    np.testing.assert_array_equal(images.numpy(), pictures[[4, 1, 3, 0, 2]].transpose(0, 3, 1, 2))
    png.write(tmp_path / "cat" / "9.png", pictures[0][:4])
    with pytest.raises(ValueError, match="9.png"):
        datasets.image_folder(tmp_path)
