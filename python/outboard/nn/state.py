"""The tensors of a model by name, and the files they are kept in.

    state = safe_load("model.safetensors")     # reads the header only
    load_state_dict(model, state)              # the weights go to the cloud, as far as it lacks them
    safe_save(get_state_dict(model), "trained.safetensors")

No file is read when it is loaded, only its headers: the bytes of a tensor go to the cloud when something needs them, and not at
all where the cloud has them. A file must not change while its tensors are in use. Wherever a path is taken, a tensor of the
file's bytes may stand (`Tensor(pathlib.Path("x.gguf"))`, or one that was computed).

What is no such file, or a damaged one, is a ValueError that says why, of an archive also tarfile.ReadError or
zipfile.BadZipFile; a file that is not there is FileNotFoundError.
"""
import errno
import functools
import io
import os
import pathlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Iterable, TypeVar

from outboard import _core
from outboard._core import Bytes, DType, Tensor
from outboard.nn.archives import INFLATED_BYTES_MAX, check_inflated, inflate, tar_members, zip_members

_File = "Tensor | str | os.PathLike[str]"
_T = TypeVar("_T")


class TensorIO(io.RawIOBase):
    """A tensor of bytes, which are uint8 along one axis, as a binary file to read, as by `tarfile` or `zipfile`.

    Each read waits for its bytes and no others: `io.BufferedReader(TensorIO(t), 1 << 20)` asks for 1 MiB at a time.
    Realise a tensor that is computed before: each read would compute what it needs again.
    ValueError: a tensor of another type or with more axes.
    """

    def __init__(self, t: Tensor):
        if t.ndim != 1 or t.dtype != DType.uint8:
            raise ValueError(f"a file as a tensor has one axis of uint8, not {t.shape} of {t.dtype}")
        self._bytes, self._at = Bytes(t), 0

    def __repr__(self) -> str:
        return f"<TensorIO of {self.size} bytes, at {self._at}>"

    @property
    def size(self) -> int:
        """In bytes."""
        return self._bytes.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer, as far as there are bytes; returns how many."""
        self._check_open()
        with memoryview(buffer).cast("B") as target:
            data = self._bytes.read(self._at, len(target))
            target[:len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check_open()
        data = self._bytes.read(self._at, self.size - self._at)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """The next read begins there: at 0, or at the end, where that lies outside. ValueError: no such `whence`."""
        self._check_open()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence is 0, 1 or 2, not {whence!r}")
        self._at = min(self.size, max(0, (0, self._at, self.size)[whence] + offset))
        return self._at

    def write(self, s: Any) -> int:
        raise io.UnsupportedOperation("TensorIO: a tensor's bytes are read only")

    def writelines(self, lines: Iterable[Any]) -> None:
        raise io.UnsupportedOperation("TensorIO: a tensor's bytes are read only")

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed TensorIO")


def accept_filename(func: Callable[[Tensor], _T]) -> "Callable[[Tensor | str | pathlib.Path], _T]":
    """`@accept_filename` before a function of a tensor of a file's bytes: it may then be given a path instead.

    FileNotFoundError: no such file.
    """
    @functools.wraps(func)
    def taking_path(fn: "Tensor | str | pathlib.Path") -> _T:
        return func(fn if isinstance(fn, Tensor) else Tensor(pathlib.Path(fn)))

    return taking_path


def get_state_dict(obj: Any, prefix: str = "", tensor_type: type = Tensor) -> dict[str, Any]:
    """The tensors that an object consists of, by their path of attributes, list places and dict keys: "layers.0.weight"."""
    state: dict[str, Any] = {}

    def collect(part: Any, path: str) -> None:
        if isinstance(part, tensor_type):
            state[path.strip(".")] = part
            return
        for name, value in _parts(part):
            collect(value, f"{path}{name}.")

    collect(obj, prefix)
    return state


def _parts(obj: Any) -> Iterable[tuple[Any, Any]]:
    if hasattr(obj, "_asdict"):
        return obj._asdict().items()
    if not isinstance(obj, OrderedDict) and isinstance(attributes := getattr(obj, "__dict__", None), dict):
        return attributes.items()
    if isinstance(obj, (list, tuple)):
        return enumerate(obj)
    return obj.items() if isinstance(obj, dict) else ()


def get_parameters(obj: Any) -> list[Tensor]:
    """The tensors that an object consists of."""
    return list(get_state_dict(obj).values())


def load_state_dict(model: Any, state_dict: dict[str, Tensor], strict: bool = True, verbose: bool = True, consume: bool = False,
                    realize: bool = True) -> list[Tensor]:
    """The model's tensors become those of the same names; returns them.

    A name that is missing is a KeyError unless `strict` is False; another shape is a ValueError. Names that the model does not
    have are left alone. With `consume` each entry is removed from `state_dict` once it is in the model; with `realize` all of
    them are computed, by one message.
    """
    start = time.perf_counter()
    wanted = get_state_dict(model)
    missing = [name for name in wanted if name not in state_dict]
    if missing and strict:
        raise KeyError(f"missing in the state dict: {', '.join(missing[:8])}{' ...' if len(missing) > 8 else ''}")
    for name, tensor in wanted.items():
        if name in state_dict and tensor.shape != state_dict[name].shape and {tensor.shape, state_dict[name].shape} != {(), (1,)}:
            raise ValueError(f"Shape mismatch in layer `{name}`: Expected shape {tensor.shape}, but found {state_dict[name].shape} "
                             "in state dict.")
    loaded = []
    for name, tensor in wanted.items():
        if name in state_dict:
            tensor.replace(state_dict[name].reshape(tensor.shape))
            loaded.append(tensor)
            if consume:
                del state_dict[name]
    if realize and loaded:
        loaded[0].realize(*loaded[1:])
    if verbose:
        size = sum(tensor.numel() * tensor.dtype.itemsize for tensor in loaded)
        print(f"loaded weights in {(time.perf_counter() - start) * 1e3:6.2f} ms, {size / 1e9:.2f} GB in {len(loaded)} tensors")
    return loaded


# ---- safetensors ---------------------------------------------------------------------------------


def safe_load_metadata(fn: _File) -> tuple[Tensor, int, dict[str, Any]]:
    """The file's bytes, where the tensors begin in them, and what the header says of each; texts are under "__metadata__"."""
    import json

    source = Bytes(fn)
    data_start = _core.safetensors_header_bytes(source.read(0, 8), source.size)
    try:
        header = json.loads(source.read(8, data_start - 8))
    except RecursionError:
        raise ValueError(f"{source.name}: the header is nested too deeply") from None
    return fn if isinstance(fn, Tensor) else source.tensors([(DType.uint8, [source.size], 0)])[0], data_start, header


def safe_load(fn: _File) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, in the order in which they lie there."""
    return _core.safetensors_load(Bytes(fn))


def safe_save(tensors: dict[str, Tensor], fn: "str | os.PathLike[str]", metadata: dict[str, str] | None = None) -> None:
    """Writes a safetensors file; waits for the values. `metadata` are texts by name: the format has no others.

    FileNotFoundError: the file's folder is not there.
    """
    texts = list((metadata or {}).items())
    if wrong := [name for name, text in texts if not isinstance(name, str) or not isinstance(text, str)]:
        raise TypeError(f"safetensors' metadata are texts: {wrong[0]!r} is none")
    if not os.path.isdir(os.path.dirname(path := os.fspath(fn)) or "."):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    _core.safetensors_save(list(tensors.items()), path, texts)


# ---- other formats -------------------------------------------------------------------------------


def gguf_load(fn: _File) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a GGUF file says of its model, and its tensors: those of quantised types are float32.

    Packed weights travel packed and are expanded in the cloud, whenever something needs them: realise those that are needed
    often. A model in several files is loaded by the path of the first. All types of GGML are known (client/nn/ggml.h).
    """
    return _core.gguf_load(fn)


def torch_load(fn: _File) -> Any:
    """What torch.save wrote: a dict of tensors by name, or another container of tensors, numbers and texts.

    Nothing of the file is executed. What names a class or function that a state dict does not need, such as a whole model, is a
    ValueError with that name.
    """
    from outboard.nn import torch_files

    return torch_files.load(Bytes(fn))


def tar_extract(fn: _File) -> dict[str, Tensor]:
    """The files of a tar archive as tensors of uint8, by name. The archive must not be compressed."""
    source = Bytes(fn)
    members = tar_members(source)
    return dict(zip(members, source.tensors([(DType.uint8, [place.size], place.offset) for place in members.values()])))


def zip_extract(fn: _File, inflated_bytes_max: int = INFLATED_BYTES_MAX) -> dict[str, Tensor]:
    """The files of a zip archive as tensors of uint8, by name.

    Stored files are not read. Deflated ones are inflated here, and are a ValueError if they come to more than
    `inflated_bytes_max` together.
    """
    source = Bytes(fn)
    members = zip_members(source)
    check_inflated(source, members, inflated_bytes_max)
    stored = [name for name, member in members.items() if not member.is_deflated]
    ranges = [(DType.uint8, [members[name].place.size], members[name].place.offset) for name in stored]
    tensors = dict(zip(stored, source.tensors(ranges)))
    return {name: tensors[name] if name in tensors else Tensor(inflate(source, name, member)) for name, member in members.items()}


# ---- bytes by their hash -------------------------------------------------------------------------

_BY_HASH = "fs/"  # before the names of the store that are hashes


def fs_store(t: Tensor) -> Tensor:
    """Keeps the tensor's bytes in the cloud's store, under "fs/" and its hash in hexadecimal; returns `t.hash()`.

    The bytes are written by the worker; waits for the hash, and until they are on disk. They stay until
    `outboard store rm` removes the name (docs/store.md).
    """
    from outboard.checkpoint import save
    from outboard.hashing import bytes_of

    data = bytes_of(t.contiguous()).flatten().realize()
    name = data.hash().realize()
    save(_name_of(name), {"bytes": data})
    return name


def fs_load(t: Tensor, size: int) -> Tensor:
    """The first `size` bytes, as uint8, of what `fs_store` keeps under the hash `t` (16 of uint8), which it waits for.

    Bytes beyond the stored ones are zeros to the end of the last MiB, since a hash names them so.
    AssertionError: no hash. outboard.NotFound (a LookupError): nothing is stored under it. ValueError: `size` is
    negative, or beyond that end.
    """
    from outboard.checkpoint import load
    from outboard.hashing import CHUNK_BYTES, HASH_BYTES
    from outboard.helpers import round_up

    assert t.dtype == DType.uint8 and t.numel() == HASH_BYTES, f"a hash has {HASH_BYTES} elements of uint8, not {t!r}"
    data = load(_name_of(t))["bytes"]
    end = max(CHUNK_BYTES, round_up(data.numel(), CHUNK_BYTES))
    if not 0 <= size <= end:
        raise ValueError(f"fs_load: {size} bytes of {data.numel()}, or {end} with the zeros behind them")
    return data[:size] if size <= data.numel() else data.pad_to(size)


def _name_of(name: Tensor) -> str:
    return _BY_HASH + bytes(name.flatten().tolist()).hex()
