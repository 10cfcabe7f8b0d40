"""Pictures: what is written is read, by whatever filter it was written; what is damaged, or larger than it says, is refused."""
import struct
import zlib

import numpy as np
import pytest

from outboard import png


def file_of(*chunks: tuple[bytes, bytes]) -> bytes:
    out = b"\x89PNG\r\n\x1a\n"
    for kind, data in chunks:
        out += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return out


def header(width, height, kind, depth=8, interlace=0):
    return b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlace)


def filtered(pixels: np.ndarray, filters: list[int]) -> bytes:
    """Written from the formulas of the specification, a byte at a time."""
    height, step = pixels.shape[0], pixels.shape[2]
    rows = pixels.reshape(height, -1).astype(int)
    out = bytearray()
    for y in range(height):
        out.append(filters[y])
        for x in range(rows.shape[1]):
            a = rows[y, x - step] if x >= step else 0
            b = rows[y - 1, x] if y else 0
            c = rows[y - 1, x - step] if y and x >= step else 0
            p = a + b - c
            nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            out.append((rows[y, x] - [0, a, b, (a + b) // 2, nearest][filters[y]]) % 256)
    return bytes(out)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (4, 3, 4), (4, 3, 2), (1, 1), (1, 9, 3)])
def test_what_is_written_is_read(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    png.write(tmp_path / "x.png", pixels)
    np.testing.assert_array_equal(png.read(tmp_path / "x.png"), pixels)
    np.testing.assert_array_equal(png.read((tmp_path / "x.png").read_bytes()), pixels)


@pytest.mark.parametrize("channels, kind", [(1, 0), (2, 4), (3, 2), (4, 6)])
def test_every_filter(channels, kind):
    pixels = np.random.default_rng(channels).integers(0, 256, (10, 6, channels)).astype(np.uint8)
    data = zlib.compress(filtered(pixels, [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]))
    picture = file_of(header(6, 10, kind), (b"tEXt", b"by\0hand"), (b"IDAT", data[:20]), (b"IDAT", data[20:]), (b"IEND", b""))
    np.testing.assert_array_equal(png.read(picture).reshape(pixels.shape), pixels)
    first = zlib.compress(filtered(pixels[:1], [4]))
    picture = file_of(header(6, 1, kind), (b"IDAT", first), (b"IEND", b""))
    np.testing.assert_array_equal(png.read(picture).reshape(1, 6, channels), pixels[:1])


def test_a_file_without_end(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    png.write(path, np.zeros((2, 2), np.uint8))
    monkeypatch.setattr(png, "FILE_BYTES_MAX", path.stat().st_size)
    png.read(path)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match="more than"):
        png.read(path)


def test_palettes():
    indices = np.array([[0, 1], [2, 1]], np.uint8)
    lines = zlib.compress(filtered(indices[..., None], [0, 0]))
    palette = bytes([1, 2, 3, 40, 50, 60, 7, 8, 9])
    rgb = png.read(file_of(header(2, 2, 3), (b"PLTE", palette), (b"IDAT", lines), (b"IEND", b"")))
    assert rgb.tolist() == [[[1, 2, 3], [40, 50, 60]], [[7, 8, 9], [40, 50, 60]]]
    rgba = png.read(file_of(header(2, 2, 3), (b"PLTE", palette), (b"tRNS", b"\x10"), (b"IDAT", lines), (b"IEND", b"")))
    assert rgba[0].tolist() == [[1, 2, 3, 16], [40, 50, 60, 255]]
    with pytest.raises(ValueError, match="palette"):
        png.read(file_of(header(2, 2, 3), (b"PLTE", palette[:6]), (b"IDAT", lines), (b"IEND", b"")))
    with pytest.raises(ValueError, match="palette"):
        png.read(file_of(header(2, 2, 3), (b"IDAT", lines), (b"IEND", b"")))


def test_what_is_no_picture_is_refused():
    lines = zlib.compress(filtered(np.zeros((2, 2, 1), np.uint8), [0, 0]))
    end = (b"IEND", b"")
    whole = file_of(header(2, 2, 0), (b"IDAT", lines), end)
    assert png.read(whole).shape == (2, 2)
    for n in range(len(whole)):
        with pytest.raises(ValueError):
            png.read(whole[:n])
    damaged = bytearray(whole)
    damaged[45] ^= 1
    bomb = zlib.compress(bytes(10_000_000))
    for picture, reason in [
        (bytes(damaged), "checksum"),
        (file_of((b"IDAT", lines), end), "header"),
        (file_of(header(2, 2, 0), end), "too few"),
        (file_of(header(2, 3, 0), (b"IDAT", lines), end), "too few"),
        (file_of(header(2, 2, 0), (b"IDAT", b"nothing"), end), "damaged"),
        (file_of(header(0, 2, 0), (b"IDAT", lines), end), "pixels"),
        (file_of(header(1 << 31, 1 << 31, 6), (b"IDAT", lines), end), "pixels"),
        (file_of(header(2, 2, 0, depth=16), (b"IDAT", lines), end), "16 bits"),
        (file_of(header(2, 2, 0, interlace=1), (b"IDAT", lines), end), "interlace"),
        (file_of(header(2, 2, 5), (b"IDAT", lines), end), "kind 5"),
        (file_of(header(2, 1, 0), (b"IDAT", zlib.compress(b"\5ab")), end), "filter 5"),
        (b"GIF89a", "not a PNG"),
    ]:
        with pytest.raises(ValueError, match=reason):
            png.read(picture)
    assert png.read(file_of(header(2, 2, 0), (b"IDAT", bomb), end)).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("pixels", [np.zeros((2, 2), np.float32), np.zeros((2, 2, 5), np.uint8), np.zeros((0, 2), np.uint8),
                                    np.zeros(3, np.uint8)])
def test_what_cannot_be_written(pixels):
    with pytest.raises(ValueError, match="uint8"):
        png.encode(pixels)
