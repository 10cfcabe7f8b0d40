"""Bytes from elsewhere and under their hash: tensors as files, memory, URLs, fs_store and fs_load."""
import ctypes
import gc
import gzip
import hashlib
import io
import pathlib
import tarfile
import zipfile

import numpy as np
import pytest

import outboard
from outboard import Tensor, dtypes
from outboard.nn.state import TensorIO, accept_filename, fs_load, fs_store, tar_extract, zip_extract

RNG = np.random.default_rng(3)
TEXT = bytes(range(256)) * 40


# ---- TensorIO ------------------------------------------------------------------------------------


@pytest.fixture(params=["sent", "computed", "file"])
def file(request, tmp_path) -> TensorIO:
    if request.param == "file":
        (tmp_path / "text").write_bytes(TEXT)
        return TensorIO(Tensor(tmp_path / "text"))
    tensor = Tensor(TEXT)
    return TensorIO(tensor if request.param == "sent" else (tensor + 0).realize())


def test_a_tensor_reads_as_a_file(file):
    wanted = io.BytesIO(TEXT)
    assert file.size == len(TEXT) and file.readable() and file.seekable() and not file.writable()
    for step in (lambda f: f.read(10), lambda f: f.tell(), lambda f: f.read(0), lambda f: f.seek(5, 1),
                 lambda f: f.read(3), lambda f: f.seek(-7, 2), lambda f: f.read(), lambda f: f.read(),
                 lambda f: f.seek(0), lambda f: f.read(1), lambda f: f.seek(len(TEXT)), lambda f: f.read(4),
                 lambda f: f.tell()):
        assert step(file) == step(wanted)


def test_readinto_fills_what_there_is(file):
    file.seek(-3, 2)
    buffer = bytearray(b"......")
    assert file.readinto(buffer) == 3 and bytes(buffer) == TEXT[-3:] + b"..."
    file.seek(1)
    wide = np.zeros(2, np.uint32)
    assert file.readinto(wide) == 8 and wide.tobytes() == TEXT[1:9]


def test_places_outside_are_the_ends(file):
    assert file.seek(-5) == 0 and file.seek(len(TEXT) + 5) == len(TEXT)
    with pytest.raises(ValueError):
        file.seek(0, 3)


def test_a_tensor_as_a_file_is_not_written_and_closes(file):
    for call in (lambda: file.write(b"a"), lambda: file.writelines([b"a"])):
        with pytest.raises(io.UnsupportedOperation):
            call()
    with file:
        pass
    for call in (lambda: file.read(1), lambda: file.readall(), lambda: file.seek(0), lambda: file.tell()):
        with pytest.raises(ValueError):
            call()


def test_only_bytes_along_one_axis_are_a_file():
    for wrong in (Tensor.zeros(2, 2, dtype="uint8"), Tensor([1.0]), Tensor(1, dtype="uint8")):
        with pytest.raises(ValueError):
            TensorIO(wrong)


def test_pythons_own_readers_take_it():
    tar, archive = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as writer:
        member = tarfile.TarInfo("a")
        member.size = 5
        writer.addfile(member, io.BytesIO(b"hello"))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("b", b"world" * 100)
    with tarfile.open(fileobj=io.BufferedReader(TensorIO(Tensor(tar.getvalue())))) as reader:
        assert reader.extractfile("a").read() == b"hello"
    with zipfile.ZipFile(TensorIO(Tensor(archive.getvalue()))) as reader:
        assert reader.read("b") == b"world" * 100


def test_accept_filename(tmp_path):
    @accept_filename
    def length(t: Tensor) -> int:
        """Of a file."""
        return t.numel()

    (tmp_path / "a").write_bytes(b"12345")
    assert length(tmp_path / "a") == length(str(tmp_path / "a")) == length(Tensor(b"12345")) == 5
    assert length.__name__ == "length" and length.__doc__ == "Of a file."
    with pytest.raises(FileNotFoundError):
        length(tmp_path / "none")


# ---- memory and URLs -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"])
def test_from_blob_reads_memory(name):
    array = RNG.integers(0, 2, (3, 4)).astype(name)
    copy = array.copy()
    x = Tensor.from_blob(array.ctypes.data, (3, 4), dtype=getattr(dtypes, name))
    array[:] = 1 - array
    assert x.dtype == getattr(dtypes, name) and (x.numpy() == copy).all()


def test_from_blob_reads_what_the_shape_covers_and_no_more():
    buffer = (ctypes.c_float * 6)(*range(6))
    address = ctypes.addressof(buffer)
    first, later = Tensor.from_blob(address, (2,)), Tensor.from_blob(address + 8, (2, 2), dtype="float32", device="CPU")
    none = Tensor.from_blob(0, (0, 3))
    del buffer
    gc.collect()
    assert first.tolist() == [0, 1] and later.tolist() == [[2, 3], [4, 5]] and none.shape == (0, 3)
    assert first.dtype == dtypes.float32


def test_from_blob_refuses():
    for error, address, shape in [(ValueError, 0, (1,)), (ValueError, -8, (1,)), (ValueError, 8, (-1,)),
                                  (TypeError, "8", (1,)), (TypeError, 8, (1.0,)), (TypeError, True, (1,))]:
        with pytest.raises(error):
            Tensor.from_blob(address, shape)


def test_from_url_reads_files(tmp_path):
    path = tmp_path / "a b.bin"
    path.write_bytes(b"abcd")
    for url in (path.as_uri(), path.as_uri().replace("file://", "file://localhost"), str(path)):
        x = Tensor.from_url(url)
        assert x.dtype == dtypes.uint8 and bytes(x.tolist()) == b"abcd"
    assert Tensor.from_url(path.as_uri(), dtype="uint16").shape == (2,)
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(TEXT))
    assert bytes(Tensor.from_url(packed.as_uri(), gunzip=True).tolist()) == TEXT
    packed.write_bytes(gzip.compress(TEXT)[:50])
    for damaged in (packed, path):
        with pytest.raises(ValueError):
            Tensor.from_url(damaged.as_uri(), gunzip=True)
    with pytest.raises(FileNotFoundError):
        Tensor.from_url((tmp_path / "none").as_uri())


@pytest.mark.parametrize("url", ["https://example.com/a", "http://127.0.0.1:1/", "file://elsewhere/a", "ftp://a/b",
                                 "a.bin", ""])
def test_from_url_downloads_nothing(url):
    with pytest.raises(NotImplementedError, match="nothing is downloaded"):
        Tensor.from_url(url)


# ---- by their hash -------------------------------------------------------------------------------


def test_what_is_stored_is_loaded_by_its_hash():
    array = RNG.standard_normal((50, 7)).astype(np.float32)
    name = fs_store(Tensor(array))
    assert name.shape == (16,) and name.dtype == dtypes.uint8
    chunk = array.tobytes().ljust(1 << 20, b"\0")
    leaves = b"".join(hashlib.shake_128(chunk[at:at + 4096]).digest(16) for at in range(0, 1 << 20, 4096))
    assert bytes(name.tolist()) == hashlib.shake_128(leaves).digest(16)
    assert list(outboard.load("fs/" + bytes(name.tolist()).hex())) == ["bytes"]
    loaded = fs_load(name, array.nbytes)
    assert loaded.dtype == dtypes.uint8
    np.testing.assert_array_equal(loaded.bitcast(dtypes.float32).reshape(50, 7).numpy(), array)
    assert bytes(fs_load(name, 5).tolist()) == array.tobytes()[:5] and fs_load(name, 0).shape == (0,)
    assert bytes(fs_load(name, array.nbytes + 9).tolist()) == array.tobytes() + bytes(9)
    with outboard.Session():
        assert bytes(fs_load(Tensor(name.tolist(), dtype="uint8"), 5).tolist()) == array.tobytes()[:5]


def test_bytes_that_differ_by_zeros_at_the_end_have_one_hash():
    name = fs_store(Tensor(b"ab\0\0"))
    assert fs_store(Tensor(b"ab")).tolist() == name.tolist()
    assert bytes(fs_load(name, 4).tolist()) == b"ab\0\0"


def test_fs_load_refuses():
    name = fs_store(Tensor(b"abc"))
    for size in (-1, (1 << 20) + 1):
        with pytest.raises(ValueError):
            fs_load(name, size)
    for wrong in (Tensor(b"abc"), Tensor.zeros(16)):
        with pytest.raises(AssertionError):
            fs_load(wrong, 3)
    with pytest.raises(LookupError, match="nothing is stored"):
        fs_load(Tensor(bytes(range(16))), 3)


# ---- archives ------------------------------------------------------------------------------------


def test_no_archive_is_what_pythons_readers_say():
    for call, error in [(tar_extract, tarfile.ReadError), (tar_extract, ValueError), (zip_extract, zipfile.BadZipFile),
                        (zip_extract, ValueError)]:
        for wrong in (b"", b"a", b"a" * 2000):
            with pytest.raises(error):
                call(Tensor(wrong) if wrong else Tensor.zeros(0, dtype="uint8"))
        with pytest.raises(FileNotFoundError):
            call(pathlib.Path("/nowhere/a.tar"))
