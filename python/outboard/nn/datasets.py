"""Data sets from files that are on this machine; nothing is downloaded.

They are looked for in the folder that is passed; else in folders of their names (mnist, fashion-mnist, cifar-10) where
the environment variable OUTBOARD_DATASETS says, and where Debian's packages put them. A file may be gzipped or not. What
is not there is a FileNotFoundError that says where was looked.
"""
import os
import pathlib
import struct
import zlib

from outboard._core import DType, Tensor
from outboard.nn.archives import BytesSource, tar_members

DEBIAN_FOLDER = "/usr/share/datasets"
FILE_BYTES_MAX = 1 << 30  # of one file, unpacked

Split = tuple[Tensor, Tensor, Tensor, Tensor]


def mnist(device=None, fashion: bool = False, folder: "str | os.PathLike[str] | None" = None) -> Split:
    """Images [60000, 1, 28, 28] and labels [60000] to train with, then 10,000 of each to test with; all of uint8.

    The four files are train-images-idx3-ubyte, train-labels-idx1-ubyte and those of t10k, as distributed. With `fashion`
    it is Fashion-MNIST, which Debian has as dataset-fashion-mnist; of handwritten digits it has none.
    """
    name = "fashion-mnist" if fashion else "mnist"
    places = _folders(folder, name)

    def load(what: str) -> Tensor:
        path = _find(places, f"{what}-ubyte", f"{what}-ubyte.gz")
        return Tensor(_idx(path))

    images, labels = (load(what) for what in ("train-images-idx3", "train-labels-idx1"))
    test_images, test_labels = (load(what) for what in ("t10k-images-idx3", "t10k-labels-idx1"))
    return images.unsqueeze(1), labels, test_images.unsqueeze(1), test_labels


def cifar(device=None, folder: "str | os.PathLike[str] | None" = None) -> Split:
    """CIFAR-10: images [50000, 3, 32, 32] and labels [50000] to train with, then 10,000 of each to test with; all uint8.

    From the binary version: its folder cifar-10-batches-bin, or cifar-10-binary.tar (.gz) in a folder cifar-10.
    """
    places = _folders(folder, "cifar-10-batches-bin") + _folders(folder, "cifar-10")
    path = _find(places, "data_batch_1.bin", "cifar-10-binary.tar", "cifar-10-binary.tar.gz")
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    if path.suffix == ".bin":
        batches = [_unpacked(path.with_name(name)) for name in names]
    else:
        archive = BytesSource(_unpacked(path), str(path))
        members = {name.rsplit("/", 1)[-1]: place for name, place in tar_members(archive).items()}
        if missing := [name for name in names if name not in members]:
            raise ValueError(f"{path}: has no {missing[0]}")
        batches = [archive.read(*members[name]) for name in names]
    records = [_cifar_records(batch, name, path) for batch, name in zip(batches, names)]
    train, test = Tensor.cat(*records[:-1]), records[-1]
    return train[:, 1:].reshape(-1, 3, 32, 32), train[:, 0], test[:, 1:].reshape(-1, 3, 32, 32), test[:, 0]


def image_folder(folder: "str | os.PathLike[str]") -> tuple[Tensor, Tensor, list[str]]:
    """Images [n, channels, height, width] of uint8, labels [n] of int32, and the classes: the folder has one folder a class.

    The pictures are PNG files of one size and kind (outboard/png.py), in the order of their names.
    """
    import numpy

    from outboard import png

    root = pathlib.Path(folder)
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    pictures, labels, first = [], [], None
    for label, name in enumerate(classes):
        for path in sorted((root / name).glob("*.png")):
            picture = png.read(path)
            first = (picture.shape, path) if first is None else first
            if picture.shape != first[0]:
                raise ValueError(f"{path}: {picture.shape} beside {first[0]} of {first[1]}")
            pictures.append(picture if picture.ndim == 3 else picture[..., None])
            labels.append(label)
    if not pictures:
        raise FileNotFoundError(f"{root}: no folders with PNG files in them")
    images = numpy.ascontiguousarray(numpy.stack(pictures).transpose(0, 3, 1, 2))
    return Tensor(images), Tensor(labels, dtype=DType.int32), classes


# ---- files ---------------------------------------------------------------------------------------


def _folders(folder: "str | os.PathLike[str] | None", name: str) -> list[pathlib.Path]:
    if folder is not None:
        return [pathlib.Path(folder), pathlib.Path(folder) / name]
    return [pathlib.Path(root) / name for root in (os.environ.get("OUTBOARD_DATASETS"), DEBIAN_FOLDER) if root]


def _find(places: list[pathlib.Path], *names: str) -> pathlib.Path:
    for place in places:
        for name in names:
            if (place / name).is_file():
                return place / name
    looked = ", ".join(str(place) for place in places)
    raise FileNotFoundError(f"no {' or '.join(names)} in {looked}; pass folder=, or set OUTBOARD_DATASETS to the folder "
                            "that they are in")


def _unpacked(path: pathlib.Path) -> bytes:
    """The file, gunzipped where it is gzipped."""
    with open(path, "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if data[:2] == b"\x1f\x8b":
        inflate = zlib.decompressobj(31)
        try:
            data = inflate.decompress(data, FILE_BYTES_MAX + 1)
        except zlib.error as error:
            raise ValueError(f"{path}: damaged ({error})") from None
        if not inflate.eof and len(data) <= FILE_BYTES_MAX:
            raise ValueError(f"{path}: cut off")
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{path}: more than {FILE_BYTES_MAX} bytes")
    return data


def _idx(path: pathlib.Path):
    """An IDX file of bytes as an array: 0, 0, 8, the count of axes, their lengths (big-endian), then the elements."""
    import numpy

    data = _unpacked(path)
    rank = data[3] if data[:3] == b"\0\0\x08" and len(data) > 3 else 0
    head = 4 + 4 * rank
    if rank == 0 or len(data) < head:
        raise ValueError(f"{path}: no IDX file of bytes")
    dims = struct.unpack(f">{rank}I", data[4:head])
    values = numpy.frombuffer(data, numpy.uint8, offset=head)
    count = 1
    for dim in dims:
        count *= dim
    if values.size != count:
        raise ValueError(f"{path}: {values.size} elements, but the header says {dims}")
    return values.reshape(dims)


def _cifar_records(data: bytes, name: str, path: pathlib.Path) -> Tensor:
    """[n, 3073]: a label and three planes of 32 x 32."""
    if not data or len(data) % 3073 != 0:
        raise ValueError(f"{path}: {name} is not made of records of 3073 bytes")
    return Tensor(data).reshape(-1, 3073)
