"""Hashes that the cloud computes, beside those of Python's hashlib."""
import hashlib

import numpy as np
import pytest

from outboard import Tensor, TinyJit, Variable

RNG = np.random.default_rng(7)
SHAKE_128_RATE, LEAF, CHUNK = 168, 4096, 1 << 20


def data(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def digest(name: str, message: bytes) -> bytes:
    return hashlib.shake_128(message).digest(16) if name == "shake_128" else getattr(hashlib, name)(message).digest()


def bytes_in(x: Tensor) -> bytes:
    assert str(x.dtype) == "dtypes.uchar"
    return bytes(x.flatten().tolist())


@pytest.mark.parametrize("name, rate", [("sha3_224", 144), ("sha3_256", 136), ("shake_128", SHAKE_128_RATE)])
def test_lengths_around_a_block(name, rate):
    for length in (0, 1, rate - 1, rate, rate + 1, 2 * rate - 1, 2 * rate):
        message = data(length)
        hashed = Tensor(message).keccak(name)
        assert bytes_in(hashed) == digest(name, message.tobytes()), length
        assert hashed.shape == (len(digest(name, b"")),)


def test_the_default_is_sha3_256():
    assert bytes_in(Tensor(b"Hello World!").keccak()) == hashlib.sha3_256(b"Hello World!").digest()


@pytest.mark.parametrize("length", [8 * SHAKE_128_RATE - 1, 8 * SHAKE_128_RATE, 20 * SHAKE_128_RATE + 5])
def test_more_blocks_than_one_run_has(length):
    messages = data(3, length)
    got = Tensor(messages).keccak("shake_128")
    assert [bytes(row) for row in got.tolist()] == [digest("shake_128", row.tobytes()) for row in messages]


def test_a_batch():
    messages = data(3, 2, 200)
    got = Tensor(messages).keccak().numpy()
    assert got.shape == (3, 2, 32) and got.dtype == np.uint8
    for i in range(3):
        for j in range(2):
            assert got[i, j].tobytes() == hashlib.sha3_256(messages[i, j].tobytes()).digest()
    assert Tensor.zeros(0, 5, dtype="uint8").keccak().shape == (0, 32)


@pytest.mark.parametrize("rate, suffix, digest_of", [
    (72, 6, lambda message: hashlib.sha3_512(message).digest()),
    (104, 6, lambda message: hashlib.sha3_384(message).digest()),
    (136, 0x1f, lambda message: hashlib.shake_256(message).digest(32))])
def test_by_rate_and_suffix(rate, suffix, digest_of):
    message = data(rate + 3)
    assert bytes_in(Tensor(message).keccak((rate, suffix))) == digest_of(message.tobytes())


def test_other_types_are_hashed_as_their_bytes():
    floats, ints = RNG.standard_normal(50).astype(np.float32), RNG.integers(0, 1 << 60, 9)
    for array in (floats, ints, np.array([True, False, True])):
        assert bytes_in(Tensor(array).keccak()) == hashlib.sha3_256(array.tobytes()).digest()


@pytest.mark.parametrize("length", [150, 2000])
def test_keccak_in_a_captured_step(length):
    step = TinyJit(lambda x: x.keccak())
    for message in data(4, length):
        assert bytes_in(step(Tensor(message).realize())) == hashlib.sha3_256(message.tobytes()).digest()


def test_keccak_refuses():
    for wrong in ("sha3", "md5", (0, 6), (200, 6), (12, 6), (136, 0), (136, 0x80), (1, 2, 3)):
        with pytest.raises(ValueError):
            Tensor(b"a").keccak(wrong)
    with pytest.raises(IndexError):
        Tensor(3, dtype="uint8").keccak()
    with pytest.raises(RuntimeError, match="Variable"):
        Tensor(b"abcd")[:Variable("n", 1, 4).bind(2)].keccak()


def hash_of_chunk(chunk: bytes) -> bytes:
    chunk = chunk.ljust(CHUNK, b"\0")
    leaves = b"".join(digest("shake_128", chunk[at:at + LEAF]) for at in range(0, CHUNK, LEAF))
    return digest("shake_128", leaves)


@pytest.mark.parametrize("length", [0, 12, CHUNK - 1, CHUNK])
def test_the_hash_of_one_chunk(length):
    message = data(length)
    hashed = Tensor(message).hash()
    assert hashed.shape == (16,) and bytes_in(hashed) == hash_of_chunk(message.tobytes())


@pytest.mark.parametrize("length", [CHUNK + 1, 3 * CHUNK])
def test_the_hash_of_several_chunks_is_that_of_their_hashes(length):
    message = data(length).tobytes()
    chunks = [hash_of_chunk(message[at:at + CHUNK]) for at in range(0, length, CHUNK)]
    assert bytes_in(Tensor(message).hash()) == hash_of_chunk(b"".join(chunks))


def test_the_hash_is_of_the_bytes_alone():
    array = RNG.standard_normal((4, 6)).astype(np.float32)
    wanted = hash_of_chunk(array.tobytes())
    assert bytes_in(Tensor(array).hash()) == bytes_in(Tensor(array.tobytes()).hash()) == wanted
    assert bytes_in(Tensor(array.T.copy()).hash()) != wanted
