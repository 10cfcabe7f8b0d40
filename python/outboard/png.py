"""PNG files as NumPy arrays of uint8, and back: 8 bits a channel, gray, RGB or palette, each with or without transparency.

    pixels = png.read("cat.png")            # [height, width, 3], or [height, width] of a gray picture
    png.write("plot.png", pixels)

Interlaced pictures and other depths are refused, as is whatever is no PNG (ValueError, with the reason): a picture never
takes more memory than its size in pixels says, and that is at most PIXELS_MAX. Source: the PNG specification (W3C, 3rd ed.).
"""
import os
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

PIXELS_MAX = 1 << 26
FILE_BYTES_MAX = 6 * PIXELS_MAX  # four channels that do not compress, and room for what else such files hold

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _RGB, _PALETTE, _GRAY_ALPHA, _RGBA = 0, 2, 3, 4, 6
_CHANNELS = {_GRAY: 1, _RGB: 3, _PALETTE: 1, _GRAY_ALPHA: 2, _RGBA: 4}


def read(source: "str | os.PathLike[str] | bytes") -> "numpy.ndarray":
    """The pixels: [height, width] of a gray picture, else [height, width, channels] with 2 (gray and alpha), 3 or 4 channels.

    `source` is a path, or the file's bytes.
    """
    if isinstance(source, bytes):
        return _decode(source, "PNG")
    with open(source, "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{os.fspath(source)}: more than {FILE_BYTES_MAX} bytes")
    return _decode(data, os.fspath(source))


def write(path: "str | os.PathLike[str]", pixels: "numpy.ndarray") -> None:
    """Writes uint8 pixels, shaped as `read` returns them."""
    data = encode(pixels)
    with open(path, "wb") as file:
        file.write(data)


def encode(pixels: "numpy.ndarray") -> bytes:
    """The bytes of a PNG file of these uint8 pixels."""
    import numpy

    pixels = numpy.asarray(pixels)
    kinds = {1: _GRAY, 2: _GRAY_ALPHA, 3: _RGB, 4: _RGBA}
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype != numpy.uint8 or pixels.ndim not in (2, 3) or channels not in kinds or 0 in pixels.shape:
        raise ValueError(f"a picture is uint8 [height, width] or [height, width, 1 to 4], not {pixels.dtype} {pixels.shape}")
    height, width = pixels.shape[:2]
    # Differences to the pixel above: pictures of few colours become rows of zeros.
    rows = pixels.reshape(height, -1)
    above = numpy.vstack([numpy.zeros_like(rows[:1]), rows[:-1]])
    lines = numpy.hstack([numpy.full((height, 1), 2, numpy.uint8), rows - above])
    header = struct.pack(">IIBBBBB", width, height, 8, kinds[channels], 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines.tobytes())) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _chunks(data: bytes, name: str) -> dict[bytes, bytes]:
    """By kind; those of one kind joined."""
    if not data.startswith(_SIGNATURE):
        raise ValueError(f"{name}: not a PNG file")
    parts: dict[bytes, list[bytes]] = {}
    at = len(_SIGNATURE)
    while b"IEND" not in parts:
        if len(data) - at < 12:
            raise ValueError(f"{name}: the file is cut off")
        (length,) = struct.unpack_from(">I", data, at)
        kind, end = data[at + 4:at + 8], at + 8 + length
        if end + 4 > len(data):
            raise ValueError(f"{name}: the file is cut off")
        if struct.unpack_from(">I", data, end)[0] != zlib.crc32(data[at + 4:end]):
            raise ValueError(f"{name}: damaged (a {kind!r} chunk has another checksum)")
        parts.setdefault(kind, []).append(data[at + 8:end])
        at = end + 4
    return {kind: b"".join(pieces) for kind, pieces in parts.items()}


def _decode(data: bytes, name: str) -> "numpy.ndarray":
    import numpy

    chunks = _chunks(data, name)
    header = chunks.get(b"IHDR", b"")
    if len(header) != 13:
        raise ValueError(f"{name}: has no header")
    width, height, depth, kind, compression, filtering, interlace = struct.unpack(">IIBBBBB", header)
    if depth != 8 or kind not in _CHANNELS or compression or filtering or interlace:
        raise ValueError(f"{name}: only pictures of 8 bits a channel that are not interlaced are read "
                         f"(this one: {depth} bits, kind {kind}, interlace {interlace})")
    if width == 0 or height == 0 or width * height > PIXELS_MAX:
        raise ValueError(f"{name}: {width} by {height} pixels; at most {PIXELS_MAX} are read")
    channels = _CHANNELS[kind]
    expected = height * (1 + width * channels)
    inflate = zlib.decompressobj()
    try:
        lines = inflate.decompress(chunks.get(b"IDAT", b""), expected)
    except zlib.error as error:
        raise ValueError(f"{name}: damaged ({error})") from None
    if len(lines) != expected:
        raise ValueError(f"{name}: has too few pixels")
    rows = numpy.frombuffer(lines, numpy.uint8).reshape(height, 1 + width * channels)
    pixels = _unfiltered(rows[:, 0], rows[:, 1:], channels, name)
    if kind == _PALETTE:
        return _coloured(pixels, chunks, name)
    return pixels.reshape((height, width) if channels == 1 else (height, width, channels))


def _unfiltered(filters: "numpy.ndarray", rows: "numpy.ndarray", step: int, name: str) -> "numpy.ndarray":
    """Each row as the differences it holds say: to the left (`step` bytes), above, their mean, or what Paeth predicts."""
    import numpy

    pixels = numpy.empty_like(rows)
    above = numpy.zeros_like(rows[0])
    for y, (which, row) in enumerate(zip(filters.tolist(), rows)):
        if which == 0:
            pixels[y] = row
        elif which == 1:
            # A running sum modulo 256, channel by channel.
            pixels[y] = numpy.cumsum(row.reshape(-1, step), axis=0, dtype=numpy.uint8).reshape(-1)
        elif which == 2:
            pixels[y] = row + above
        elif which in (3, 4):
            predict = _paeth if which == 4 else lambda left, up, corner: (left + up) // 2
            pixels[y] = numpy.frombuffer(_predicted(row.tolist(), above.tolist(), step, predict), numpy.uint8)
        else:
            raise ValueError(f"{name}: damaged (there is no filter {which})")
        above = pixels[y]
    return pixels


def _predicted(row: list[int], above: list[int], step: int, predict) -> bytearray:
    out = bytearray(len(row))
    for i, difference in enumerate(row):
        left, corner = (out[i - step], above[i - step]) if i >= step else (0, 0)
        out[i] = (difference + predict(left, above[i], corner)) & 255
    return out


def _paeth(left: int, up: int, corner: int) -> int:
    to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if to_left <= to_up and to_left <= to_corner:
        return left
    return up if to_up <= to_corner else corner


def _coloured(indices: "numpy.ndarray", chunks: dict[bytes, bytes], name: str) -> "numpy.ndarray":
    import numpy

    palette = numpy.frombuffer(chunks.get(b"PLTE", b""), numpy.uint8)
    if palette.size == 0 or palette.size % 3 != 0 or palette.size > 768:
        raise ValueError(f"{name}: has no palette")
    palette = palette.reshape(-1, 3)
    if b"tRNS" in chunks:
        alpha = numpy.full((len(palette), 1), 255, numpy.uint8)
        given = numpy.frombuffer(chunks[b"tRNS"], numpy.uint8)[:len(palette)]
        alpha[:len(given), 0] = given
        palette = numpy.hstack([palette, alpha])
    if indices.max() >= len(palette):
        raise ValueError(f"{name}: a colour that the palette does not have")
    return palette[indices]
