"""Which members a tar or zip file has, and where their bytes lie in it: nothing but headers is read.

Files come from anywhere. A member that reaches beyond the file's end, or (in a zip file) overlaps another one, is
refused, as are compressed tar files, encrypted and sparse members: TarError or ZipError (archive_errors.py), which are
ValueErrors, with the reason. Sources of the formats: POSIX.1-2017 (pax), the GNU tar manual, PKWARE's APPNOTE.
"""
import io
import struct
import zlib
from typing import NamedTuple, Protocol

NAME_BYTES_MAX = 1 << 16
INFLATED_BYTES_MAX = 1 << 32


class Source(Protocol):
    """As outboard._core.Bytes."""

    @property
    def size(self) -> int: ...
    @property
    def name(self) -> str: ...
    def read(self, offset: int, size: int) -> bytes: ...


class Place(NamedTuple):
    """Of the bytes in the file."""

    offset: int
    size: int


class ZipMember(NamedTuple):
    place: Place
    inflated_size: int
    crc: int
    is_deflated: bool


class BytesSource:
    """Bytes in memory as a Source."""

    def __init__(self, data: bytes, name: str):
        self.data, self.name, self.size = data, name, len(data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset:offset + size]


def _tar_error(reason: str) -> Exception:
    from outboard.nn.archive_errors import TarError  # here: tarfile and zipfile are slow to import

    return TarError(reason)


def _zip_error(reason: str) -> Exception:
    from outboard.nn.archive_errors import ZipError

    return ZipError(reason)


# ---- tar -----------------------------------------------------------------------------------------


def tar_members(source: Source) -> dict[str, Place]:
    """The regular files of an uncompressed archive, in its order; of several with one name the last."""
    members: dict[str, Place] = {}
    at, override = 0, {}
    while len(header := source.read(at, 512)) == 512 and any(header):
        _check_sum(source, header, at)
        kind = header[156:157]
        size = int(override.get("size", _number(source, header[124:136])))
        place = Place(at + 512, size)
        if size < 0 or size > source.size - place.offset:
            raise _tar_error(f"{source.name}: the file at byte {at} reaches beyond the end")
        if kind in (b"L", b"K", b"x", b"g"):
            if size > NAME_BYTES_MAX:
                raise _tar_error(f"{source.name}: a name of {size} bytes")
            text = source.read(place.offset, size)
            if kind == b"L":
                override["path"] = _text(text)
            elif kind == b"x":
                override.update(_pax(source, text))
            elif kind == b"g" and any(name in _pax(source, text) for name in ("path", "size")):
                raise _tar_error(f"{source.name}: one name or size for all files")
        else:
            if kind == b"S" or any(name.startswith("GNU.sparse") for name in override):
                raise _tar_error(f"{source.name}: sparse files are not read")
            if kind in (b"0", b"\0", b"7"):
                members[override.get("path") or _path(header)] = place
            override = {}
        at = place.offset + -(-size // 512) * 512
    if at == 0:
        raise _tar_error(f"{source.name}: not a tar file")
    return members


def _check_sum(source: Source, header: bytes, at: int) -> None:
    if _number(source, header[148:156]) != sum(header) - sum(header[148:156]) + 8 * ord(" "):
        raise _tar_error(f"{source.name}: not a tar file, or damaged at byte {at}")


def _number(source: Source, field: bytes) -> int:
    if field[0] & 0x80:  # GNU: base 256
        return int.from_bytes(field, "big") - (1 << (8 * len(field) - 1)) if field[0] == 0x80 else -1
    try:
        return int(field.split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise _tar_error(f"{source.name}: not a tar file, or damaged") from None


def _text(field: bytes) -> str:
    return field.split(b"\0")[0].decode("utf-8", "surrogateescape")


def _path(header: bytes) -> str:
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{_text(header[:100])}" if prefix else _text(header[:100])


def _pax(source: Source, text: bytes) -> dict[str, str]:
    """Records "LENGTH NAME=VALUE\\n"."""
    records = {}
    while text.rstrip(b"\0"):
        length, _, _ = text.partition(b" ")
        if not length.isdigit() or len(length) > 6 or not len(length) < int(length) <= len(text):
            raise _tar_error(f"{source.name}: damaged (a pax record)")
        name, _, value = text[len(length) + 1:int(length) - 1].partition(b"=")
        records[_text(name)] = _text(value)
        text = text[int(length):]
    if not records.get("size", "0").isdecimal():
        raise _tar_error(f"{source.name}: damaged (a size in a pax record)")
    return records


# ---- zip -----------------------------------------------------------------------------------------


class _File(io.RawIOBase):
    """A Source as what zipfile reads."""

    def __init__(self, source: Source):
        self.source, self.at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = max(0, offset + (0, self.at, self.source.size)[whence])
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, size: int = -1) -> bytes:
        data = self.source.read(self.at, self.source.size if size < 0 else size)
        self.at += len(data)
        return data


def is_zip(source: Source) -> bool:
    return source.read(0, 4) in (b"PK\3\4", b"PK\5\6")


def zip_members(source: Source) -> dict[str, ZipMember]:
    """The files of an archive, in the order of its directory."""
    import zipfile

    try:
        with zipfile.ZipFile(_File(source)) as archive:  # type: ignore[arg-type]
            entries = archive.infolist()
    except (zipfile.BadZipFile, struct.error, EOFError, OverflowError, NotImplementedError) as error:
        raise _zip_error(f"{source.name}: {error}") from None
    members: dict[str, ZipMember] = {}
    for entry in entries:
        if entry.is_dir():
            continue
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _zip_error(f"{source.name}: {entry.filename} is encrypted, or compressed by method "
                             f"{entry.compress_type}")
        if entry.filename in members:
            raise _zip_error(f"{source.name}: {entry.filename} is there twice")
        place = Place(_data_offset(source, entry), entry.compress_size)
        is_deflated = entry.compress_type == zipfile.ZIP_DEFLATED
        if not is_deflated and entry.file_size != entry.compress_size:
            raise _zip_error(f"{source.name}: {entry.filename} has two sizes")
        members[entry.filename] = ZipMember(place, entry.file_size, entry.CRC, is_deflated)
    end = 0
    for name, member in sorted(members.items(), key=lambda item: item[1].place):
        if member.place.offset < end or member.place.offset + member.place.size > source.size:
            raise _zip_error(f"{source.name}: {name} overlaps another file, or reaches beyond the end")
        end = member.place.offset + member.place.size
    return members


def _data_offset(source: Source, entry) -> int:
    """Behind the member's own header, whose length only that header tells."""
    header = source.read(entry.header_offset, 30) if entry.header_offset >= 0 else b""
    if len(header) != 30 or header[:4] != b"PK\3\4":
        raise _zip_error(f"{source.name}: {entry.filename} is not where the directory says")
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:])
    return entry.header_offset + 30 + name_bytes + extra_bytes


def inflate(source: Source, name: str, member: ZipMember) -> bytes:
    """What a deflated member holds: never more than it says."""
    decompressor = zlib.decompressobj(-15)
    try:
        data = decompressor.decompress(source.read(*member.place), member.inflated_size + 1)
    except zlib.error as error:
        raise _zip_error(f"{source.name}: {name}: {error}") from None
    if len(data) != member.inflated_size or zlib.crc32(data) != member.crc:
        raise _zip_error(f"{source.name}: {name} is not what its size and checksum say")
    return data


def check_inflated(source: Source, members: dict[str, ZipMember], bytes_max: int) -> None:
    """That all deflated members together stay below `bytes_max`: said before any is inflated."""
    total = sum(member.inflated_size for member in members.values() if member.is_deflated)
    if total > bytes_max:
        raise _zip_error(f"{source.name}: inflates to {total} bytes; limit {bytes_max}")
