"""GGUF files made here by a packer in NumPy; what their weights mean is written from the format's documentation.

Every type of GGML is compared with its reference implementation in tests/client/ggml_test.cc; here are the common ones again, by
other code: "GGUF" and "Quantization" of the ggml project's documents, and the comments of its block structures.
"""
import pathlib
import struct

import numpy as np
import pytest

from outboard import Tensor, _core, dtypes
from outboard.nn.state import gguf_load

RNG = np.random.default_rng(0)
F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K, I8, BF16 = 0, 1, 2, 3, 6, 7, 8, 12, 14, 24, 30


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value_of(value) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<Iq", 11, value)
    if isinstance(value, float):
        return struct.pack("<Id", 12, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    kind = value_of(value[0])[:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(value)) + b"".join(value_of(item)[4:] for item in value)


def pack(values: dict, arrays: dict[str, tuple[tuple[int, ...], int, bytes]], alignment: int = 32) -> bytes:
    out = b"GGUF" + struct.pack("<IQQ", 3, len(arrays), len(values))
    for name, value in values.items():
        out += text(name) + value_of(value)
    data = b""
    for name, (shape, kind, packed) in arrays.items():
        out += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(data))
        data += packed + bytes(-len(packed) % alignment)
    return out + bytes(-len(out) % alignment) + data


def halves(count: int) -> np.ndarray:
    return RNG.normal(size=(count, 1)).astype(np.float16)


def nibbles(q: np.ndarray) -> np.ndarray:
    """Two of [n, 32] a byte: the first sixteen are the low halves."""
    return (q[:, :16] | q[:, 16:] << 4).astype(np.uint8)


def fifths(q: np.ndarray) -> np.ndarray:
    """The fifth bits of [n, 32], a bit each."""
    return np.packbits(q >> 4 & 1, axis=1, bitorder="little")


def blocks_of(*parts: np.ndarray) -> bytes:
    return np.hstack([np.ascontiguousarray(part).view(np.uint8) for part in parts]).tobytes()


def legacy(kind: int, n: int) -> tuple[bytes, np.ndarray]:
    d, m = halves(n), halves(n)
    df, mf = d.astype(np.float32), m.astype(np.float32)
    if kind == Q8_0:
        q = RNG.integers(-128, 128, (n, 32)).astype(np.int8)
        return blocks_of(d, q), q * df
    q = RNG.integers(0, 16 if kind in (Q4_0, Q4_1) else 32, (n, 32))
    low, f = nibbles(q & 15), q.astype(np.float32)
    return {
        Q4_0: lambda: (blocks_of(d, low), (f - 8) * df),
        Q4_1: lambda: (blocks_of(d, m, low), f * df + mf),
        Q5_0: lambda: (blocks_of(d, fifths(q), low), (f - 16) * df),
        Q5_1: lambda: (blocks_of(d, m, fifths(q), low), f * df + mf),
    }[kind]()


def q4_k(n: int) -> tuple[bytes, np.ndarray]:
    d, dmin = halves(n), halves(n)
    scale, least = RNG.integers(0, 64, (n, 8)), RNG.integers(0, 64, (n, 8))
    q = RNG.integers(0, 16, (n, 8, 32))
    packed = np.hstack([scale[:, :4] | scale[:, 4:] >> 4 << 6, least[:, :4] | least[:, 4:] >> 4 << 6,
                        scale[:, 4:] & 15 | (least[:, 4:] & 15) << 4]).astype(np.uint8)
    bytes_ = (q[:, 0::2] | q[:, 1::2] << 4).astype(np.uint8).reshape(n, 128)
    y = (d.astype(np.float32) * scale.astype(np.float32))[..., None] * q.astype(np.float32)
    return blocks_of(d, dmin, packed, bytes_), y - (dmin.astype(np.float32) * least.astype(np.float32))[..., None]


def q6_k(n: int) -> tuple[bytes, np.ndarray]:
    d, scale = halves(n), RNG.integers(-128, 128, (n, 16)).astype(np.int8)
    q = RNG.integers(0, 64, (n, 2, 4, 32))  # halves of 128; in each, four runs of 32
    low = np.concatenate([q[:, :, 0] & 15 | (q[:, :, 2] & 15) << 4, q[:, :, 1] & 15 | (q[:, :, 3] & 15) << 4], axis=2)
    high = sum((q[:, :, i] >> 4) << 2 * i for i in range(4))
    y = (d.astype(np.float32) * scale.astype(np.float32))[..., None] * (q.reshape(n, 16, 16) - 32).astype(np.float32)
    return blocks_of(low.astype(np.uint8).reshape(n, 128), high.astype(np.uint8).reshape(n, 64), scale, d), y


@pytest.mark.parametrize("kind, size, make", [(kind, 32, lambda n, kind=kind: legacy(kind, n)) for kind in (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0)] +
                         [(Q4_K, 256, q4_k), (Q6_K, 256, q6_k)])
def test_weights_are_expanded(tmp_path, kind, size, make):
    packed, expected = make(12)
    (tmp_path / "w.gguf").write_bytes(pack({}, {"w": ((6, 2 * size), kind, packed)}))
    _, state = gguf_load(tmp_path / "w.gguf")
    assert state["w"].dtype == dtypes.float32 and state["w"].shape == (6, 2 * size)
    np.testing.assert_array_equal(state["w"].numpy(), expected.reshape(6, -1).astype(np.float32))
    # In a product, as a model uses it: nothing is lost on the way through another kernel.
    x = RNG.normal(size=(3, 2 * size)).astype(np.float32)
    product = (Tensor(x) @ state["w"].transpose(0, 1)).numpy()
    np.testing.assert_allclose(product, x @ expected.reshape(6, -1).T, rtol=1e-4, atol=1e-3 * np.abs(product).max())


def test_what_the_file_says_and_plain_types(tmp_path):
    values = {"general.name": "tiny", "n": -3, "eps": 1e-5, "flag": True, "tokens": ["a", "ü", ""], "scores": [0.5, -1.0],
              "flags": [True, False]}
    f = RNG.normal(size=(2, 3)).astype(np.float32)
    i = np.array([-1, 2, 3], np.int8)
    path = tmp_path / "plain.gguf"
    path.write_bytes(pack(values, {"f": (f.shape, F32, f.tobytes()), "h": ((6,), F16, f.astype(np.float16).tobytes()),
                                   "i": (i.shape, I8, i.tobytes()), "b": ((1,), BF16, b"\x80\x3f"), "s": ((), F32, b"\0\0\x80\x3f"),
                                   "none": ((0, 32), Q4_0, b"")}))
    for source in (path, str(path), Tensor(path), Tensor(path.read_bytes())):
        said, state = gguf_load(source)
        assert said == values and list(state) == ["f", "h", "i", "b", "s", "none"]
        np.testing.assert_array_equal(state["f"].numpy(), f)
        np.testing.assert_array_equal(state["h"].numpy(), f.astype(np.float16).reshape(-1))
        assert state["i"].dtype == dtypes.int8 and state["i"].tolist() == [-1, 2, 3]
        assert state["b"].dtype == dtypes.bfloat16 and state["b"].tolist() == [1.0]
        assert state["s"].shape == () and state["s"].item() == 1.0
        assert state["none"].shape == (0, 32)


def test_models_in_parts(tmp_path):
    def part(number, name):
        packed, expected = legacy(Q8_0, 1)
        path = tmp_path / f"m-{number + 1:05d}-of-00002.gguf"
        path.write_bytes(pack({"split.no": number, "split.count": 2}, {name: ((32,), Q8_0, packed)}))
        return path, expected

    (first, a), (second, b) = part(0, "a"), part(1, "b")
    _, state = gguf_load(first)
    np.testing.assert_array_equal(state["a"].numpy(), a[0])
    np.testing.assert_array_equal(state["b"].numpy(), b[0])
    with pytest.raises(ValueError, match="first"):
        gguf_load(second)
    with pytest.raises(ValueError, match="path"):
        gguf_load(Tensor(first.read_bytes()))


def test_files_that_are_none(tmp_path):
    whole = pack({"a": "b"}, {"w": ((32,), Q8_0, bytes(34))})
    path = tmp_path / "x.gguf"
    with pytest.raises(FileNotFoundError):
        gguf_load(path)
    for n in list(range(0, len(whole) - 64, 5)):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError):
            gguf_load(pathlib.Path(path))
    path.write_bytes(pack({}, {"w": ((32,), 40, bytes(64))}))
    with pytest.raises(NotImplementedError, match="40"):
        gguf_load(path)
    with pytest.raises(ValueError):
        _core.ggml_dequantize(Tensor.zeros(2, 17, dtype=dtypes.uint8), Q4_0)
