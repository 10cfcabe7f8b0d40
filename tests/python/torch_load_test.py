"""Files of PyTorch: those that this machine's PyTorch writes, those of its first releases written by hand, and hostile ones."""
import collections
import io
import os
import pickle
import pickletools
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from outboard import Tensor, dtypes
from outboard.nn import unpickling
from outboard.nn.state import torch_load

torch = pytest.importorskip("torch")


def saved(tmp_path, value, zipped=True):
    path = tmp_path / "x.pt"
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


both = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "plain"])

VALUES = {
    "f32": torch.randn(3, 4), "f64": torch.randn(2).double(), "f16": torch.randn(5).half(), "i64": torch.arange(4), "i32": torch.arange(4).int(),
    "i16": torch.arange(4).short(), "i8": torch.tensor([-1, 2], dtype=torch.int8), "u8": torch.tensor([255], dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]), "scalar": torch.tensor(3.5), "none": torch.zeros(0, 3)
}


@both
def test_every_type(tmp_path, zipped):
    path = saved(tmp_path, {**VALUES, "bf16": torch.tensor([1.5, -2], dtype=torch.bfloat16)}, zipped)
    for source in (path, str(path), Tensor(path), Tensor(path.read_bytes())):
        state = torch_load(source)
        for name, value in VALUES.items():
            assert state[name].shape == tuple(value.shape)
            np.testing.assert_array_equal(state[name].numpy(), value.numpy())
            assert state[name].numpy().dtype == value.numpy().dtype
        assert state["bf16"].dtype == dtypes.bfloat16 and state["bf16"].tolist() == [1.5, -2]


@both
def test_views_and_shared_storages(tmp_path, zipped):
    base = torch.arange(60.0).reshape(3, 4, 5)
    views = {
        "permuted": base.permute(2, 0, 1), "transposed": base[0].t(), "rows": base[1:], "columns": base[:, :, 1:3], "steps": base[::2, 1::2],
        "expanded": base[0, :, :1].expand(4, 7), "one": base[2, 3, 4], "diagonal": base[0].diagonal(), "again": base[1:],
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    }
    state = torch_load(saved(tmp_path, views, zipped))
    for name, view in views.items():
        np.testing.assert_array_equal(state[name].numpy(), view.numpy(), err_msg=name)
    assert state["rows"] is state["again"]


@both
def test_models_and_optimisers(tmp_path, zipped):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 4))
    optimiser = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    state = torch_load(saved(tmp_path, {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "epoch": 3, "best": 0.5,
                                        "notes": ["a", None, (1, True)], "size": torch.Size([2, 3]), "parameter": model[2].weight}, zipped))
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(state["model"][name].numpy(), value.numpy())
    moment = optimiser.state_dict()["state"][0]["exp_avg"]
    np.testing.assert_array_equal(state["optimiser"]["state"][0]["exp_avg"].numpy(), moment.numpy())
    assert state["optimiser"]["param_groups"][0]["betas"] == (0.9, 0.999)
    assert state["epoch"] == 3 and state["best"] == 0.5 and state["notes"] == ["a", None, (1, True)] and state["size"] == (2, 3)
    np.testing.assert_array_equal(state["parameter"].numpy(), model[2].weight.detach().numpy())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(tmp_path, protocol):
    path = tmp_path / "x.pt"
    torch.save({"w": torch.arange(3), "b": b"\x00\xff", "big": 1 << 70, "text": "ü" * 300}, path, pickle_protocol=protocol)
    state = torch_load(path)
    assert state["w"].tolist() == [0, 1, 2] and state["b"] == b"\x00\xff" and state["big"] == 1 << 70 and state["text"] == "ü" * 300


def test_the_first_releases(tmp_path):
    """A tar file of three pickled files; classes of PyTorch are written by name."""
    class Global:
        def __init__(self, module, name):
            self.module, self.name = module, name

    class Pickler(pickle._Pickler):
        def save_global_by_name(self, value):
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())

        def persistent_id(self, value):
            return value.key if isinstance(value, Kept) else None

    Kept = collections.namedtuple("Kept", "key")
    Pickler.dispatch = {**pickle._Pickler.dispatch, Global: Pickler.save_global_by_name}

    def dump(*values):
        out = io.BytesIO()
        for value in values:
            out.write(value) if isinstance(value, bytes) else Pickler(out, 2).dump(value)
        return out.getvalue()

    float_storage, float_tensor = Global("torch", "FloatStorage"), Global("torch", "FloatTensor")
    weights = np.arange(6, dtype=np.float32)
    storages = dump(1, (140, "cpu", float_storage), struct.pack("<q", 6) + weights.tobytes(), [])
    tensors = dump(2, (7, 140, float_tensor), struct.pack("<ii2q2qq", 2, 0, 2, 2, 2, 1, 1), (8, 140, float_tensor),
                   struct.pack("<iiqqq", 1, 0, 3, 2, 0))
    state = dump(collections.OrderedDict(w=Kept("7"), v=Kept("8"), n=3))
    path = tmp_path / "old.pt"

    def write(**files):
        with tarfile.open(path, "w") as archive:
            for name, data in {"sys_info": dump({}), "pickle": state, "storages": storages, "tensors": tensors, **files}.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return path

    loaded = torch_load(write())
    assert loaded["w"].tolist() == [[1, 2], [3, 4]] and loaded["v"].tolist() == [0, 2, 4] and loaded["n"] == 3
    views = dump(1, (140, "cpu", float_storage), struct.pack("<q", 6) + weights.tobytes(), [(141, 140, 2, 4)])
    of_view = dump(2, (7, 141, float_tensor), struct.pack("<iiqqq", 1, 0, 4, 1, 0), (8, 140, float_tensor), struct.pack("<iiqqq", 1, 0, 1, 1, 5))
    loaded = torch_load(write(storages=views, tensors=of_view))
    assert loaded["w"].tolist() == [2, 3, 4, 5] and loaded["v"].tolist() == [5]
    for damaged in [{"storages": storages[:-30]}, {"tensors": tensors[:-4]}, {"pickle": b"junk"}, {"storages": dump(-1)},
                    {"tensors": dump(1, (7, 140, float_tensor), struct.pack("<iiqqq", 1, 0, 7, 1, 0))}]:
        with pytest.raises(ValueError):
            torch_load(write(**damaged))


# ---- hostile files -------------------------------------------------------------------------------


def file_of(tmp_path, data_pkl: bytes, files: dict[str, bytes] | None = None, zipped=True):
    path = tmp_path / "hostile.pt"
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {"x/data.pkl": data_pkl, **(files or {})}.items():
                archive.writestr(name, data)
    else:
        head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
        path.write_bytes(head + data_pkl + pickle.dumps([], 2))
    return path


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@both
@pytest.mark.parametrize("call", [Call(os.system, "touch owned"), Call(eval, "open('owned', 'w')"), Call(getattr, {}, "keys"), Call(exec, "1"), Call(__import__, "os"), Call(open, "owned", "w"),
                                  Call(torch.load, "owned"), Call(collections.Counter, "a"), Call(np.dtype, "f4")],
                         ids=lambda call: call.function.__name__)
@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_is_called(tmp_path, monkeypatch, call, protocol, zipped):
    monkeypatch.chdir(tmp_path)
    path = file_of(tmp_path, pickle.dumps({"w": call}, protocol), zipped=zipped)
    with pytest.raises(ValueError, match=f"refused: the pickle names .*{call.function.__name__}"):
        torch_load(path)
    assert not os.path.exists("owned")


def test_what_is_refused_is_named(tmp_path):
    with pytest.raises(ValueError, match="torch.nn.modules.linear.Linear"):
        torch_load(saved(tmp_path, torch.nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="ComplexFloatStorage"):
        torch_load(saved(tmp_path, {"c": torch.zeros(2, dtype=torch.complex64)}))
    with pytest.raises(ValueError, match="TorchScript"):
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "s.pt"))
        torch_load(tmp_path / "s.pt")
    # Control characters of a file do not reach the terminal.
    with pytest.raises(ValueError) as error:
        torch_load(file_of(tmp_path, b"\x80\x02c\x1b[2J\nevil\n."))
    assert "\x1b" not in str(error.value)


ORDERED = b"ccollections\nOrderedDict\n"


@pytest.mark.parametrize("data", [
    b"", b".", b"\x80\x02", b"\x80\x02}", b"0.", b"(.", b"h\x07.", b"j\xff\xff\xff\x7f.",
    b"}r\xff\xff\xff\x7fh\x01.",                # a place in the memo that is not there
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.",  # bytes without an end
    b"\x96\xff\xff\xff\xff\xff\xff\x00\x00x.",
    b"\x8b\xff\xff\xff\x7f1.",                  # an integer of 2 GiB
    b"I" + b"9" * 10000 + b"\n.",
    b"}(K\x01u.", b"K\x01K\x02s.", b"]}]s.", b"K\x01K\x02a.", b"}K\x01b.", b"K\x01K\x02\x86R.",
    b"}}}\x87" + b"(" * 10 + b"t" * 9 + b"s.",
    b"P1\n.", b"U\x01aQ.",
    b"(" + b"(" * 100000 + b"t" * 100000 + b"K\x01s.",
    b"}" + b")" + b"\x85" * 200000 + b"K\x01s.",  # a deep key: its hash would overflow the stack
    ORDERED + b"K\x05\x85R.", ORDERED + b"]]\x85a\x85R.",
    b"\x82\x01.", b"(ios\nsystem\n.", b"(cos\nsystem\no.", b"\x92.", b"\x97.",
    b"ctorch._utils\n_rebuild_tensor_v2\n)R.", b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x01K\x01K\x01tR.",
    b"ctorch\nFloatStorage\n)R.", b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R.",
    b"ctorch._tensor\n_rebuild_from_type_v2\n(K\x01K\x02K\x03K\x04tR.",
    b"ctorch.nn.parameter\nParameter\n)\x81K\x01b.", b"ctorch\ndevice\n]\x85R.",
], ids=range(38))
@both
def test_damaged_pickles(tmp_path, data, zipped):
    with pytest.raises(ValueError):
        torch_load(file_of(tmp_path, data, zipped=zipped))


PAIRS = b"](" + b"".join(b"K" + bytes([i]) + b"K\x01\x86" for i in range(100)) + b"e"


@pytest.mark.parametrize("data, works", [
    (b"X\xe8\x03\x00\x00" + b"a" * 1000 + b"q\x00X\x06\x00\x00\x00latin1q\x01\x30\x30c_codecs\nencode\nq\x02\x30(" +
     b"h\x02h\x00h\x01\x86R" * count + b"l.", count < 60) for count in (50, 70)] + [
    (PAIRS + b"q\x00\x30ccollections\nOrderedDict\nq\x01\x30(" + b"h\x01h\x00\x85R" * count + b"l.", count < 10)
    for count in (5, 15)] + [(b"V" + b"a" * count + b"\n.", count < 500) for count in (400, 600)])
def test_a_pickle_makes_no_more_than_its_limit(tmp_path, monkeypatch, data, works):
    monkeypatch.setattr(unpickling, "PICKLE_BYTES_MAX", 1 << 16)
    monkeypatch.setattr(unpickling, "LINE_BYTES_MAX", 500)
    path = file_of(tmp_path, data)
    if works:
        assert len(torch_load(path)) in (50, 5, 400)
    else:
        with pytest.raises(ValueError, match="more than"):
            torch_load(path)


def test_deep_values_do_no_harm(tmp_path):
    value = torch_load(file_of(tmp_path, b"]" + b"\x85" * 200000 + b"."))
    depth = 0
    while value:
        value, depth = value[0], depth + 1
    assert depth == 200000


def described(numel=4, offset=0, size=(2, 2), stride=(2, 1), key="0", kind=b"FloatStorage") -> bytes:
    """A pickle of one tensor, whatever it says of itself."""
    def number(value):
        return pickle.dumps(value, 2)[2:-1]

    storage = b"(" + number("storage") + b"ctorch\n" + kind + b"\n" + number(key) + number("cpu") + number(numel) + b"tQ"
    body = storage + number(offset) + number(size) + number(stride) + number(False) + number(None)
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + body + b"tR."


@pytest.mark.parametrize("data, works", [
    (described(), True), (described(size=(4,), stride=(1,)), True), (described(size=(1 << 40,), stride=(0,)), None),
    (described(offset=1), False), (described(offset=-1), False), (described(size=(2, 3)), False), (described(size=(2, -2)), False),
    (described(stride=(2, -1)), False), (described(stride=(1 << 62, 1)), False), (described(size=(1 << 62, 1 << 62)), False),
    (described(size=(2,)), False), (described(size=(1,) * 40, stride=(1,) * 40), False), (described(size=(True, 2)), False),
    (described(size=2.5), False), (described(key="1"), False), (described(key="../../etc/passwd"), False), (described(key=("a",)), False),
    (described(numel=-1), False), (described(kind=b"LongStorage"), False), (described(kind=b"HalfStorage"), True)])
def test_tensors_stay_in_their_storages(tmp_path, data, works):
    path = file_of(tmp_path, data, {"x/data/0": np.arange(4, dtype=np.float32).tobytes()})
    if works:
        assert torch_load(path).numpy().size == 4
    else:
        with pytest.raises((ValueError, MemoryError)):
            torch_load(path).realize()


def test_archives_that_are_none(tmp_path):
    whole = saved(tmp_path, {"w": torch.randn(3)}).read_bytes()
    path = tmp_path / "cut.pt"
    for data in [whole[:n] for n in range(0, len(whole), 37)] + [b"\x80\x02K\x01.", pickle.dumps({"w": 1}), b"x" * 600]:
        path.write_bytes(data)
        with pytest.raises(ValueError):
            torch_load(path)
    plain = saved(tmp_path, {"w": torch.randn(3)}, zipped=False).read_bytes()
    for n in range(0, len(plain), 11):
        path.write_bytes(plain[:n])
        with pytest.raises(ValueError):
            torch_load(path)
    with pytest.raises(FileNotFoundError):
        torch_load(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="big-endian"):
        torch_load(file_of(tmp_path, described(), {"x/data/0": bytes(16), "x/byteorder": b"big"}))
    with pytest.raises(ValueError, match="compressed"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x/data.pkl", described())
            archive.writestr("x/data/0", bytes(1000))
        torch_load(path)


def test_the_opcodes_are_those_of_the_standard_library():
    """A name that pickletools spelt differently would never be reached."""
    from outboard.nn import unpickling

    names = {opcode.name for opcode in pickletools.opcodes}
    handled = {name[3:].upper() for name in vars(unpickling._Machine) if name.startswith("do_")}
    mine = handled | unpickling._VALUES | set(unpickling._CONSTANTS) | set(unpickling._TUPLES) | unpickling._NOTHING
    assert mine <= names
    assert names - mine == {"INST", "OBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"}
