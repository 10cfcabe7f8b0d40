"""Windows and Fourier transforms. Complex numbers are a last axis of two: real and imaginary part."""

from __future__ import annotations

import math

import numpy as np

from outboard import Tensor
from outboard.onnx.registry import op
from outboard.onnx.values import array_type_of, dtype_of


def _cosines(size: np.ndarray, periodic: int, output_datatype: int, weights: tuple[float, ...]) -> Tensor:
    n = int(size)
    angle = 2 * math.pi * np.arange(n) / (n if periodic else max(1, n - 1))
    window = sum(weight * np.cos(i * angle) for i, weight in enumerate(weights))
    return Tensor(np.asarray(window, np.float32)).cast(dtype_of(output_datatype))


@op("HannWindow", host=(0,))
def hann_window(size: np.ndarray, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _cosines(size, periodic, output_datatype, (0.5, -0.5))


@op("HammingWindow", host=(0,))
def hamming_window(size: np.ndarray, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _cosines(size, periodic, output_datatype, (25 / 46, -21 / 46))


@op("BlackmanWindow", host=(0,))
def blackman_window(size: np.ndarray, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _cosines(size, periodic, output_datatype, (0.42, -0.5, 0.08))


@op("MelWeightMatrix", host=(0, 1, 2, 3, 4))
def mel_weight_matrix(bins, dft_length, sample_rate, low_hertz, high_hertz, output_datatype: int = 1) -> Tensor:
    """Triangles whose corners are equally far apart in mel, at whole places of the spectrum."""
    count, length = int(bins), int(dft_length)
    low, high = (2595 * math.log10(1 + float(hertz) / 700) for hertz in (low_hertz, high_hertz))
    mels = np.arange(count + 2) * ((high - low) / (count + 2)) + low
    corners = ((length + 1) * 700 * (10 ** (mels / 2595) - 1) // int(sample_rate)).astype(int)
    matrix = np.zeros((length // 2 + 1, count), np.float32)
    for i in range(count):
        begin, middle, end = corners[i : i + 3]
        if begin == middle:
            matrix[middle, i] = 1
        else:
            matrix[begin : middle + 1, i] = (np.arange(begin, middle + 1) - begin) / (middle - begin)
        if middle != end:
            matrix[middle:end, i] = (end - np.arange(middle, end)) / (end - middle)
    return Tensor(matrix.astype(array_type_of(dtype_of(output_datatype))))


def _turns(rows: int, columns: int, length: int, sign: int) -> tuple[Tensor, Tensor]:
    """cos and sin of the angles by which element `column` turns at frequency `row`; exact modulo the length."""
    angle = 2 * math.pi * (np.outer(np.arange(columns), np.arange(rows)) % length) / length
    return Tensor(np.cos(angle).astype(np.float32)), Tensor((sign * np.sin(angle)).astype(np.float32))


def _dft(x: Tensor, length: int, inverse: bool, onesided: bool) -> Tensor:
    """Of the last axis but one of [..., n, 1 or 2], as a product with a matrix; [..., frequencies, 2]."""
    taken = min(x.shape[-2], length)  # fewer are followed by zeros
    bins = length // 2 + 1 if onesided else length
    cos, sin = (part.cast(x.dtype) for part in _turns(bins, taken, length, 1 if inverse else -1))
    real = x[..., :taken, 0]
    if x.shape[-1] == 1:
        parts = real.matmul(cos), real.matmul(sin)
    else:
        imaginary = x[..., :taken, 1]
        parts = real.matmul(cos) - imaginary.matmul(sin), real.matmul(sin) + imaginary.matmul(cos)
    y = Tensor.stack(*parts, dim=-1)
    return y / length if inverse else y


@op("DFT", host=(1,))
def dft(x: Tensor, dft_length: np.ndarray | None = None, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Tensor:
    moved = x.transpose(axis, -2)
    length = moved.shape[-2] if dft_length is None else int(dft_length)
    return _dft(moved, length, bool(inverse), bool(onesided)).transpose(axis, -2)


@op("DFT", since=20, host=(1, 2))
def dft_20(
    x: Tensor,
    dft_length: np.ndarray | None = None,
    axis: np.ndarray | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    return dft(x, dft_length, -2 if axis is None else int(axis), inverse, onesided)


@op("STFT", host=(1, 3))
def stft(
    signal: Tensor,
    frame_step: np.ndarray,
    window: Tensor | None = None,
    frame_length: np.ndarray | None = None,
    onesided: int = 1,
) -> Tensor:
    """[batch, length, 1 or 2] -> [batch, frames, frequencies, 2]."""
    signal = signal.unsqueeze(-1) if signal.ndim == 2 else signal
    length = int(frame_length) if frame_length is not None else window.shape[0]
    step = int(frame_step)
    frames = (signal.shape[1] - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)
    parts = signal[:, Tensor(places.astype(np.int32))]
    if window is not None:
        parts = parts * window.reshape(1, 1, -1, 1)
    return _dft(parts, length, False, bool(onesided))
