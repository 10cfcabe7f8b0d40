"""State dicts, safetensors, archives: what is kept comes back, and what is damaged is refused."""
import collections
import io
import json
import os
import struct
import tarfile
import zipfile

import numpy as np
import pytest

import outboard
from outboard import Tensor, dtypes
from outboard.nn.state import (get_parameters, get_state_dict, load_state_dict, safe_load, safe_load_metadata, safe_save,
                               tar_extract, zip_extract)

RNG = np.random.default_rng(0)


class Layer:
    def __init__(self, value: float, shape=(2, 3)):
        self.weight, self.bias, self.name = Tensor.full(shape, value), None, "layer"


Pair = collections.namedtuple("Pair", "left right")


class Model:
    def __init__(self, value: float):
        self.layers = [Layer(value), (Layer(value + 1), lambda x: x)]
        self.heads = {"a": Layer(value + 2), 7: Tensor.full((), value + 3)}
        self.ordered = collections.OrderedDict(x=Layer(value + 4))
        self.pair = Pair(Tensor.full((1,), value), 3)


NAMES = ["layers.0.weight", "layers.1.0.weight", "heads.a.weight", "heads.7", "ordered.x.weight", "pair.left"]


def test_names_are_paths():
    model = Model(1)
    state = get_state_dict(model)
    assert list(state) == NAMES
    assert state["layers.0.weight"] is model.layers[0].weight
    assert list(get_state_dict(model.layers[0], prefix="x.")) == ["x.weight"]
    assert get_state_dict(Tensor([1])).keys() == {""} and get_state_dict([1, "a", None]) == {}
    assert [p is q for p, q in zip(get_parameters(model), state.values())] == [True] * 6


def test_an_object_that_holds_itself():
    layer = Layer(1)
    layer.parent = layer
    with pytest.raises(RecursionError):
        get_state_dict(layer)


def test_a_model_takes_over_another_ones_tensors(capsys):
    model, other = Model(1), get_state_dict(Model(10))
    held = model.layers[0].weight  # as an optimiser holds it
    loaded = load_state_dict(model, other)
    assert "loaded weights" in capsys.readouterr().out
    assert len(loaded) == 6 and loaded[0] is held
    assert held.numpy().tolist() == [[10] * 3] * 2
    assert model.heads[7].item() == 13 and list(other) == NAMES
    # Both live on, each for itself.
    held.assign(held + 1).realize()
    assert other["layers.0.weight"].numpy().tolist() == [[10] * 3] * 2


def test_types_and_single_elements_are_taken_over():
    model = Layer(1)
    half = Tensor.full((2, 3), 0.5, dtype=dtypes.float16)
    load_state_dict(model, {"weight": half}, verbose=False)
    assert model.weight.dtype == dtypes.float16 and model.weight.tolist() == [[0.5] * 3] * 2
    load_state_dict(single := {"x": Tensor([1.0])}, {"x": Tensor(2.0)}, verbose=False)
    assert single["x"].shape == (1,) and single["x"].tolist() == [2]


def test_what_does_not_fit(capsys):
    model = Layer(1)
    with pytest.raises(KeyError, match="weight"):
        load_state_dict(model, {"other": Tensor([1])})
    assert load_state_dict(model, {"other": Tensor([1])}, strict=False, verbose=False) == []
    with pytest.raises(ValueError, match=r"`weight`.*\(2, 3\).*\(3, 2\)"):
        load_state_dict(model, {"weight": Tensor.zeros(3, 2)})
    assert model.weight.tolist() == [[1] * 3] * 2
    assert capsys.readouterr().out == ""


def test_consumed_entries_are_removed():
    state = {"weight": Tensor.zeros(2, 3), "other": Tensor([1])}
    load_state_dict(Layer(1), state, verbose=False, consume=True, realize=False)
    assert list(state) == ["other"]


# ---- safetensors ---------------------------------------------------------------------------------

ARRAYS = {
    "bool": np.array([True, False]), "i8": np.array([-1, 2], np.int8), "u8": np.array([[255], [0]], np.uint8),
    "i16": np.array([-300], np.int16), "u16": np.array([60000], np.uint16), "i32": np.array(7, np.int32),
    "u32": np.array([1 << 31], np.uint32), "i64": np.array([-(1 << 40)]), "u64": np.array([1 << 63], np.uint64),
    "f16": np.array([0.5, 65504], np.float16), "f32": RNG.normal(size=(3, 5)).astype(np.float32), "f64": RNG.normal(size=3),
    "none": np.zeros((0, 3), np.float32), "name \"with\" ü\n": np.ones(1, np.float32)
}


def test_safetensors_there_and_back(tmp_path):
    path = tmp_path / "x.safetensors"
    state = {name: Tensor(array) for name, array in ARRAYS.items()}
    state["bf16"] = Tensor([1.5, -2.0], dtype=dtypes.bfloat16)
    state["f8"] = Tensor([1.5, -2.0], dtype=dtypes.fp8e4m3)
    safe_save(state, path, metadata={"format": "pt", "ü": "\"\\\n"})
    for source in (path, str(path), Tensor(path), Tensor(path.read_bytes())):
        loaded = safe_load(source)
        assert loaded.keys() == state.keys()
        for name, array in ARRAYS.items():
            value = loaded[name].numpy()
            assert value.dtype == array.dtype and value.shape == array.shape
            np.testing.assert_array_equal(value, array)
        assert loaded["bf16"].dtype == dtypes.bfloat16 and loaded["bf16"].tolist() == [1.5, -2]
        assert loaded["f8"].dtype == dtypes.fp8e4m3 and loaded["f8"].tolist() == [1.5, -2]
        data, start, header = safe_load_metadata(source)
        assert header["__metadata__"] == {"format": "pt", "ü": "\"\\\n"}
        begin, end = header["f32"]["data_offsets"]
        assert data.shape == (path.stat().st_size,) and header["f32"]["shape"] == [3, 5]
        assert path.read_bytes()[start + begin:start + end] == ARRAYS["f32"].tobytes()


def test_safetensors_of_a_model_train_on(tmp_path):
    path = tmp_path / "x.safetensors"
    first, second = Layer(3.0), Layer(0.0)
    safe_save(get_state_dict(first), path)
    load_state_dict(second, safe_load(path), verbose=False)
    second.weight.requires_grad_(True)
    (second.weight * second.weight).sum().backward()
    assert second.weight.grad.tolist() == [[6] * 3] * 2
    safe_save(get_state_dict(second), path)  # over the file that it came from
    assert safe_load(path)["weight"].tolist() == [[3] * 3] * 2


def test_what_is_no_safetensors_file(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(FileNotFoundError):
        safe_load(path)
    safe_save({"a": Tensor([1.0, 2.0])}, path)
    whole = path.read_bytes()
    for n in range(0, len(whole), 7):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError):
            safe_load(path)
        with pytest.raises(ValueError):
            safe_load_metadata(path) and safe_load(path)

    def file_of(header, data):
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for header, data in [({"a": entry, "b": {**entry, "data_offsets": [4, 12]}}, bytes(12)), ({"a": {**entry, "shape": [1 << 62, 4]}}, bytes(8)),
                         ({"a": {**entry, "shape": [-2]}}, bytes(8)), ({"a": entry}, bytes(9)), ([], b"")]:
        path.write_bytes(file_of(header, data))
        with pytest.raises(ValueError):
            safe_load(path)
    path.write_bytes(file_of({"a": {**entry, "dtype": "C64"}}, bytes(8)))
    with pytest.raises(NotImplementedError, match="C64"):
        safe_load(path)
    path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(ValueError):
        safe_load(path)
    with pytest.raises(TypeError, match="epoch"):
        safe_save({"a": Tensor([1.0])}, path, metadata={"epoch": 3})
    with pytest.raises(ValueError):
        safe_load(Tensor([1, 2, 3]))


def test_a_deep_safetensors_header(tmp_path):
    path = tmp_path / "x.safetensors"
    header = b'{"__metadata__":' + b"[" * 200000
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError):
        safe_load_metadata(path)


def test_checkpoints_in_the_cloud():
    model = Model(5)
    saved = outboard.save("state_test/model", model)
    assert saved.total == 4 * (6 + 6 + 6 + 1 + 6 + 1)
    other = Model(0)
    load_state_dict(other, outboard.load("state_test/model"), verbose=False)
    assert other.heads["a"].weight.tolist() == [[7] * 3] * 2
    with pytest.raises(LookupError):
        outboard.load("state_test/none")


# ---- archives ------------------------------------------------------------------------------------

FILES = {"a.txt": b"hello", "folder/b.bin": bytes(range(256)) * 5, "empty": b"", "x" * 150 + "/long": b"z"}


def check(tensors, files=FILES):
    assert list(tensors) == list(files)
    for name, data in files.items():
        assert tensors[name].dtype == dtypes.uint8 and tensors[name].numpy().tobytes() == data


def tar_of(files, kind=tarfile.GNU_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return out.getvalue()


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_tar(tmp_path, kind):
    files = {**FILES, "ü/ö" if kind != tarfile.USTAR_FORMAT else "u": b"1"}
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(files, kind))
    check(tar_extract(path), files)
    check(tar_extract(Tensor(path)), files)


def test_tar_that_is_damaged(tmp_path):
    whole = tar_of(FILES)

    def extract(data):
        return tar_extract(Tensor(data) if data else Tensor.zeros(0, dtype=dtypes.uint8))

    def with_size(field):
        header = bytearray(whole[512:1024])
        header[124:136] = field
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        return whole[:512] + bytes(header) + whole[1024:]

    check(extract(with_size(b"%011o\0" % 5)))
    for data in [b"", b"x" * 512, whole[:1024 + 3], with_size(b"%011o\0" % (1 << 30)), with_size(b"\xff" * 12), with_size(b"-0000000001\0"),
                 with_size(b"\x80" + b"\x7f" * 11), whole[:600] + b"!" + whole[601:]]:
        with pytest.raises(ValueError):
            extract(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zip(tmp_path, method):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    check(zip_extract(path))
    check(zip_extract(Tensor(path)))


def zip_of(files, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return bytearray(out.getvalue())


def test_zip_that_is_hostile():
    def extract(data, **limits):
        return zip_extract(Tensor(bytes(data)), **limits)

    bomb = zip_of({"a": bytes(10_000_000), "b": bytes(10_000_000)})
    assert len(bomb) < 30_000
    with pytest.raises(ValueError, match="20000000 bytes; limit 1000000"):
        extract(bomb, inflated_bytes_max=1_000_000)
    directory = bomb.index(b"PK\1\2")
    lie = bomb.copy()
    lie[directory + 24:directory + 28] = struct.pack("<I", 1000)  # it says that it is small
    with pytest.raises(ValueError, match="size and checksum"):
        extract(lie)

    stored = zip_of({"a": b"A" * 100, "b": b"B" * 100}, zipfile.ZIP_STORED)
    first = stored.index(b"PK\1\2")
    second = stored.index(b"PK\1\2", first + 4)
    overlap = stored.copy()
    overlap[second + 42:second + 46] = stored[first + 42:first + 46]  # both are where the first is
    beyond = stored.copy()
    beyond[first + 20:first + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    for data in [overlap, beyond, stored[:-30], stored[:60], b"PK\5\6" + bytes(17), b"nothing"]:
        with pytest.raises(ValueError):
            extract(data)
    twice = zip_of({"a": b"1", "b": b"2"}, zipfile.ZIP_STORED)
    twice[twice.rindex(b"b")] = ord("a")
    with pytest.raises(ValueError, match="twice"):
        extract(twice)
