"""State dicts of PyTorch: its zip files (since 1.6), the plain ones before, and the tar files of its first releases.

Tensors are ranges of the file and are not read here. What a file pickles beside tensors is read by unpickling.py: numbers, texts,
containers, and of PyTorch what a state dict consists of. Sources: torch/serialization.py and torch/_utils.py, as documentation.
"""
import math
import struct
from collections import OrderedDict
from typing import Any, NamedTuple

from outboard._core import Bytes, DType, Tensor
from outboard.nn.archives import Place, is_zip, tar_members, zip_members
from outboard.nn.unpickling import Named, Pickles

_PLAIN_MAGIC, _PLAIN_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_RANK_MAX = 16

_STORAGE_DTYPES = {
    "Bool": DType.bool, "Char": DType.int8, "Byte": DType.uint8, "Short": DType.int16, "Int": DType.int32, "Long": DType.int64,
    "Half": DType.float16, "BFloat16": DType.bfloat16, "Float": DType.float32, "Double": DType.float64
}
_DTYPES = {
    "bool": DType.bool, "int8": DType.int8, "uint8": DType.uint8, "int16": DType.int16, "uint16": DType.uint16,
    "int32": DType.int32, "uint32": DType.uint32, "int64": DType.int64, "uint64": DType.uint64, "float16": DType.float16,
    "bfloat16": DType.bfloat16, "float32": DType.float32, "float64": DType.float64, "float8_e4m3fn": DType.fp8e4m3,
    "float8_e5m2": DType.fp8e5m2
}


class _Storage(NamedTuple):
    key: str
    dtype: DType
    count: int  # of elements, as the pickle says
    offset: int = 0  # in the storage of that key, in elements


class _Parameter:
    """A parameter as the first releases pickle it: made empty, then given its tensor."""

    tensor: Tensor | None = None

    def set_pickled_state(self, state: Any) -> None:
        self.tensor = state[0]


def _ints(values: Any) -> list[int]:
    if not isinstance(values, (tuple, list)) or len(values) > _RANK_MAX or not all(type(v) is int and v >= 0 for v in values):
        raise ValueError("a tensor's sizes or strides are no list of whole numbers")
    return list(values)


def _key(value: Any) -> str:
    if not isinstance(value, (str, int)):
        raise ValueError("a storage or tensor is named by a number or a text")
    return str(value)


class _Tensors:
    """Makes the tensors that a pickle describes, of the storages that are known to lie somewhere in `source`."""

    def __init__(self, source: Bytes):
        self.source = source
        self.places: dict[str, Place] | None = None  # until they are known, tensors are None
        self.storages: dict[str, _Storage] = {}
        self._made: dict[tuple, Tensor] = {}

    def storage_of(self, persistent_id: Any) -> _Storage:
        kind, named, key, _, count, *view = persistent_id
        if kind != "storage" or type(count) is not int or count < 0:
            raise ValueError("an object outside of the pickle that is no storage")
        storage = _Storage(_key(key), self.dtype_of(named), count)
        self.storages.setdefault(storage.key, storage)
        if view and view[0] is not None:
            _, offset, count = view[0]
            storage = storage._replace(count=_ints([count])[0], offset=_ints([offset])[0])
        return storage

    @staticmethod
    def dtype_of(named: Any) -> DType:
        if not isinstance(named, Named) or not isinstance(dtype := getattr(named, "dtype", None), DType):
            raise ValueError(f"a storage of {getattr(named, 'name', 'something')}")
        return dtype

    def rebuild(self, storage: _Storage, offset: int, size: Any, stride: Any, *_ignored: Any) -> Tensor | None:
        return self._tensor(storage, storage.dtype, offset, _ints(size), _ints(stride))

    def rebuild_as(self, storage: _Storage, offset: int, size: Any, stride: Any, grad: Any, hooks: Any, dtype: "_Typed",
                   *_ignored: Any) -> Tensor | None:
        return self._tensor(storage, self.dtype_of(dtype), offset, _ints(size), _ints(stride))

    def _tensor(self, storage: _Storage, dtype: DType, offset: int, size: list[int], stride: list[int]) -> Tensor | None:
        if not isinstance(storage, _Storage) or type(offset) is not int or offset < 0 or len(size) != len(stride):
            raise ValueError("a tensor without a storage, an offset, or as many strides as sizes")
        if self.places is None:
            return None
        if storage.key not in self.places:
            raise ValueError(f"the storage {storage.key} is missing")
        what = (storage, dtype, offset, tuple(size), tuple(stride))
        if what not in self._made:
            self._made[what] = self._range(storage, dtype, offset, size, stride)
        return self._made[what]

    def _range(self, storage: _Storage, dtype: DType, offset: int, size: list[int], stride: list[int]) -> Tensor:
        count = 0 if 0 in size else 1 + sum((length - 1) * step for length, step in zip(size, stride))
        place = self.places[storage.key]  # type: ignore[index]
        begin = (storage.offset + offset) * dtype.itemsize
        if begin + count * dtype.itemsize > place.size:
            raise ValueError(f"a tensor that reaches beyond its storage {storage.key}")
        dense = [math.prod(size[axis + 1:]) for axis in range(len(size))]
        is_dense = all(length == 1 or step == wanted for length, step, wanted in zip(size, stride, dense))
        shape = size if count == 0 or is_dense else [count]
        (tensor,) = self.source.tensors([(dtype, shape, place.offset + begin)])
        return tensor if shape is size else _strided(tensor, size, stride)


def _strided(flat: Tensor, size: list[int], stride: list[int]) -> Tensor:
    """The elements of `flat` at sum(place * stride): views that PyTorch saved as they were."""
    index = Tensor.zeros(*[1] * len(size), dtype=DType.int64)
    for axis, (length, step) in enumerate(zip(size, stride)):
        steps = Tensor.arange(length, dtype=DType.int64) * step
        index = index + steps.reshape(*[length if i == axis else 1 for i in range(len(size))])
    return flat[index]


class _Typed(Named):
    """A storage class or a dtype of PyTorch."""

    def __init__(self, name: str, dtype: DType):
        super().__init__(name)
        self.dtype = dtype


def _known(tensors: _Tensors) -> dict[str, Named]:
    def encode(text: str, encoding: str) -> bytes:
        if encoding != "latin1":
            raise ValueError("bytes that are not encoded as pickles do it")
        return text.encode(encoding)

    def ordered(items: Any = ()) -> OrderedDict:
        if not all(isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], (str, int)) for item in items):
            raise ValueError("a dict of something else than pairs")
        return OrderedDict(items)

    def device(kind: Any, _index: Any = None) -> str:
        if not isinstance(kind, str):  # the text of nested lists that share their items can be of any length
            raise ValueError("a device that is no text")
        return kind

    def of_type(rebuild: Named, _type: Any, arguments: tuple, _state: Any) -> Any:
        if rebuild not in (known["torch._utils._rebuild_tensor_v2"], known["torch._utils._rebuild_parameter"]):
            raise ValueError("a tensor that is made by something else than PyTorch's own functions")
        return rebuild.call(*arguments)  # type: ignore[misc]

    calls = {
        "collections.OrderedDict": ordered,
        "_codecs.encode": encode,
        "torch.Size": lambda sizes: tuple(_ints(sizes)),
        "torch.device": device,
        "torch._utils._rebuild_tensor": tensors.rebuild,
        "torch._utils._rebuild_tensor_v2": tensors.rebuild,
        "torch._utils._rebuild_tensor_v3": tensors.rebuild_as,
        "torch._utils._rebuild_parameter": lambda data, requires_grad=True, hooks=None: data,
        "torch._tensor._rebuild_from_type_v2": of_type,
        "torch.nn.parameter.Parameter": _Parameter,
    }
    known = {name: Named(name, call) for name, call in calls.items()}
    for name in ("torch.Tensor", "torch._tensor.Tensor", "torch.tensor.Tensor"):
        known[name] = Named(name)
    for kind, dtype in _STORAGE_DTYPES.items():
        known[f"torch.{kind}Storage"] = _Typed(f"torch.{kind}Storage", dtype)
        known[f"torch.{kind}Tensor"] = _Typed(f"torch.{kind}Tensor", dtype)
    known["torch.storage.UntypedStorage"] = _Typed("torch.storage.UntypedStorage", DType.uint8)
    for kind, dtype in _DTYPES.items():
        known[f"torch.{kind}"] = _Typed(f"torch.{kind}", dtype)
    return known


def load(source: Bytes) -> Any:
    """What was saved: of a model a dict of tensors by name."""
    try:
        return _load(source)
    except (AttributeError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{source.name}: damaged ({type(error).__name__})") from None


def _load(source: Bytes) -> Any:
    tensors = _Tensors(source)
    known = _known(tensors)
    if is_zip(source):
        return _load_zip(source, tensors, known)
    if source.read(257, 5) == b"ustar" or source.read(0, 12).rstrip(b"\0") in (b"sys_info", b"pickle", b"storages", b"tensors"):
        return _load_tar(source, tensors, known)
    return _load_plain(source, tensors, known)


def _load_zip(source: Bytes, tensors: _Tensors, known: dict[str, Named]) -> Any:
    members = zip_members(source)
    if not members:
        raise ValueError(f"{source.name}: an empty zip file")
    base = next(iter(members)).split("/", 1)[0] + "/"
    if f"{base}data.pkl" not in members:
        raise ValueError(f"{source.name}: a zip file that PyTorch did not write")
    if any(name.startswith(f"{base}code/") for name in members):
        raise ValueError(f"{source.name}: a TorchScript program, not a state dict")
    if (order := members.get(f"{base}byteorder")) is not None and source.read(order.place.offset, 16)[:order.place.size] != b"little":
        raise ValueError(f"{source.name}: was written on a big-endian machine")
    if any(member.is_deflated for name, member in members.items() if name.startswith(f"{base}data")):
        raise ValueError(f"{source.name}: compressed, which PyTorch does not do; nn.state.zip_extract reads it")
    prefix = f"{base}data/"
    tensors.places = {name[len(prefix):]: member.place for name, member in members.items() if name.startswith(prefix)}
    place = members[f"{base}data.pkl"].place
    return Pickles(source, known, place.offset, place.offset + place.size).load(tensors.storage_of)


def _load_plain(source: Bytes, tensors: _Tensors, known: dict[str, Named]) -> Any:
    pickles = Pickles(source, known)
    try:
        magic, protocol, system = pickles.load(), pickles.load(), pickles.load()
    except ValueError as error:
        raise ValueError(f"not a file that PyTorch wrote: {error}") from None
    if magic != _PLAIN_MAGIC or protocol != _PLAIN_PROTOCOL or not isinstance(system, dict):
        raise ValueError(f"{source.name}: not a file that PyTorch wrote")
    if system.get("little_endian") is not True:
        raise ValueError(f"{source.name}: was written on a big-endian machine")
    # The storages come behind the tensors of them, so tensors are made when the same bytes are read again.
    begin = pickles.at
    pickles.load(tensors.storage_of)
    keys = pickles.load()
    places, at = {}, pickles.at
    for key in keys if isinstance(keys, list) else []:
        if _key(key) not in tensors.storages:
            raise ValueError(f"{source.name}: a storage of no tensor")
        storage = tensors.storages[_key(key)]
        places[storage.key], at = _counted_storage(source, at, storage.dtype.itemsize)
    tensors.places = places
    return Pickles(source, known, begin).load(tensors.storage_of)


def _counted_storage(source: Bytes, at: int, itemsize: int) -> tuple[Place, int]:
    """Of a count of elements and the elements: where these are, and what is behind."""
    head = source.read(at, 8)
    count = struct.unpack("<q", head)[0] if len(head) == 8 else -1
    if count < 0 or count * itemsize > source.size - at - 8:
        raise ValueError(f"{source.name}: cut off, or damaged at byte {at}")
    return Place(at + 8, count * itemsize), at + 8 + count * itemsize


def _load_tar(source: Bytes, tensors: _Tensors, known: dict[str, Named]) -> Any:
    members = tar_members(source)
    if not {"pickle", "storages", "tensors"} <= members.keys():
        raise ValueError(f"{source.name}: a tar file that PyTorch did not write")

    def pickles_of(name: str) -> Pickles:
        place = members[name]
        return Pickles(source, known, place.offset, place.offset + place.size)

    storages: dict[str, _Storage] = {}
    tensors.places = {}
    pickles = pickles_of("storages")
    for _ in range(_ints([pickles.load()])[0]):
        key, _location, kind = pickles.load()
        dtype = tensors.dtype_of(kind)
        place, pickles.at = _counted_storage(source, pickles.at, dtype.itemsize)
        storages[_key(key)] = _Storage(_key(key), dtype, place.size // dtype.itemsize)
        tensors.places[_key(key)] = place
    for key, root, offset, count in pickles.load():
        storages[_key(key)] = storages[_key(root)]._replace(offset=_ints([offset])[0], count=_ints([count])[0])

    made: dict[str, Tensor | None] = {}
    pickles = pickles_of("tensors")
    for _ in range(_ints([pickles.load()])[0]):
        key, storage_key, _kind = pickles.load()
        rank, _unused = struct.unpack("<ii", _exactly(pickles, 8))
        if not 0 <= rank <= _RANK_MAX or _key(storage_key) not in storages:
            raise ValueError(f"{source.name}: damaged (a tensor of {rank} axes, or of no storage)")
        numbers = struct.unpack(f"<{2 * rank + 1}q", _exactly(pickles, 8 * (2 * rank + 1)))
        made[_key(key)] = tensors.rebuild(storages[_key(storage_key)], numbers[-1], numbers[:rank], numbers[rank:-1])

    def tensor_of(key: Any) -> Tensor | None:
        if _key(key) not in made:
            raise ValueError("refused: the pickle holds more than tensors (a whole model, perhaps)")
        return made[_key(key)]

    value = pickles_of("pickle").load(tensor_of)
    if not isinstance(value, dict):
        return value
    return {name: item.tensor if isinstance(item, _Parameter) else item for name, item in value.items()}


def _exactly(pickles: Pickles, size: int) -> bytes:
    data = pickles.read(size)
    if len(data) != size:
        raise ValueError(f"{pickles.source.name}: cut off")
    return data
