"""Resize: each axis by itself is a product with a matrix of weights, which is made on this machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outboard import Tensor, dtypes
from outboard.onnx.registry import op


@op("Upsample", host=(1,))
def upsample(x: Tensor, scales=None, mode: str = "nearest") -> Tensor:
    return resize(x, None, np.asarray(scales, np.float32), mode=mode, nearest_mode="floor", **_ASYMMETRIC)


_ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric"}


@op("Resize", host=(1,))
def resize_10(x: Tensor, scales: np.ndarray, mode: str = "nearest") -> Tensor:
    return resize(x, None, scales, mode=mode, nearest_mode="floor", **_ASYMMETRIC)


@op("Resize", since=11, host=(1, 2, 3))
def resize(
    x: Tensor,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    axes = [axis % x.ndim for axis in (range(x.ndim) if axes is None else axes)]
    old = [x.shape[axis] for axis in axes]
    if scales is not None and scales.size:
        new = [int(np.floor(n * scale)) for n, scale in zip(old, scales.tolist(), strict=True)]
        ratios = scales.tolist()
    else:
        new = [int(n) for n in sizes]
        ratios = [wanted / n for wanted, n in zip(new, old, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            ratio = min(ratios) if keep_aspect_ratio_policy == "not_larger" else max(ratios)
            new = [int(np.floor(n * ratio + 0.5)) for n in old]
            ratios = [ratio] * len(old)
    dtype = x.dtype
    outside = None
    for i, axis in enumerate(axes):
        whole = coordinate_transformation_mode != "tf_crop_and_resize"
        if new[i] == old[i] and ratios[i] == 1 and whole:
            continue
        region = (0.0, 1.0) if whole else (float(roi[i]), float(roi[i + len(axes)]))
        places = _places(old[i], new[i], ratios[i], region, coordinate_transformation_mode)
        if mode == "nearest":
            index = [slice(None)] * x.ndim
            index[axis] = Tensor(_nearest(places, nearest_mode).clip(0, old[i] - 1).astype(np.int32))
            x = x[tuple(index)]
        else:
            narrow = min(1.0, ratios[i]) if antialias else 1.0
            weights = _weights(places, old[i], mode, cubic_coeff_a, bool(exclude_outside), narrow)
            x = _product(x if dtypes.is_float(x.dtype) else x.cast(dtypes.float32), weights, axis)
        if not whole:
            out = np.logical_or(places < 0, places > old[i] - 1).reshape(-1, *(1,) * (x.ndim - 1 - axis))
            outside = out if outside is None else outside | out
    if outside is not None and outside.any():
        x = Tensor(np.ascontiguousarray(outside)).where(extrapolation_value, x)
    if not dtypes.is_float(dtype) and x.dtype != dtype:
        x = x.round().clip(dtype.min, dtype.max)
    return x.cast(dtype)


def _places(old: int, new: int, ratio: float, region: tuple[float, float], mode: str) -> np.ndarray:
    """Where in the old axis each of the new places lies."""
    out = np.arange(new, dtype=np.float64)
    if mode == "asymmetric":
        return out / ratio
    if mode == "align_corners":
        length = ratio * old  # not rounded, as ONNX's own results show
        return out * (old - 1) / (length - 1) if new > 1 else np.zeros(1)
    if mode == "tf_half_pixel_for_nn":
        return (out + 0.5) / ratio
    if mode == "tf_crop_and_resize":
        begin, end = region
        if new == 1:
            return np.full(1, 0.5 * (begin + end) * (old - 1))
        return begin * (old - 1) + out * (end - begin) * (old - 1) / (new - 1)
    if mode == "pytorch_half_pixel" and new == 1:
        return np.full(1, -0.5)
    if mode == "half_pixel_symmetric":  # the middle stays the middle where `new` was rounded
        return old / 2 * (1 - new / (ratio * old)) + (out + 0.5) / ratio - 0.5
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (out + 0.5) / ratio - 0.5
    raise NotImplementedError(f"Resize with coordinate_transformation_mode {mode!r}")


def _nearest(places: np.ndarray, mode: str) -> np.ndarray:
    if mode == "floor":
        return np.floor(places)
    if mode == "ceil":
        return np.ceil(places)
    if mode == "round_prefer_ceil":
        return np.floor(places + 0.5)
    return np.ceil(places - 0.5)


def _weights(places: np.ndarray, old: int, mode: str, a: float, exclude_outside: bool, narrow: float) -> np.ndarray:
    """[new, old]: how much of each old element is in each new one. Elements beyond an end repeat the last one.

    A `narrow` kernel is as many times wider: it joins all elements that one of the smaller image covers.
    """
    radius = (2 if mode == "cubic" else 1) / narrow
    first = np.floor(places - radius).astype(np.int64) + 1
    taps = first[:, None] + np.arange(int(np.ceil(2 * radius)))
    distance = np.abs(places[:, None] - taps) * narrow
    if mode == "cubic":  # Keys, "Cubic convolution interpolation for digital image processing", 1981
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((distance - 5) * distance + 8) * distance * a - 4 * a
        weight = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    else:
        weight = np.maximum(0, 1 - distance)
    if exclude_outside:
        weight = np.where((taps >= 0) & (taps < old), weight, 0)
    if exclude_outside or narrow != 1:
        weight = weight / weight.sum(1, keepdims=True)
    matrix = np.zeros((len(places), old))
    np.add.at(matrix, (np.arange(len(places))[:, None], taps.clip(0, old - 1)), weight)
    return matrix


def _product(x: Tensor, weights: np.ndarray, axis: int) -> Tensor:
    moved = x.transpose(axis, -1)
    return moved.matmul(Tensor(weights.T.astype(np.float32)).cast(x.dtype)).transpose(axis, -1)
