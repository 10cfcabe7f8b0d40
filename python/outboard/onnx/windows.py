"""Convolutions and pools over any number of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from outboard import Tensor, dtypes
from outboard.onnx.registry import op
from outboard.onnx.shape import torch_pads


def _filled(values: Sequence[int] | None, axes: int) -> list[int]:
    return [1] * axes if values is None else list(values)


def _halves(total: int, auto_pad: str) -> tuple[int, int]:
    """The odd one stands at the end for SAME_UPPER, in front for SAME_LOWER."""
    less = total // 2
    return (total - less, less) if auto_pad == "SAME_LOWER" else (less, total - less)


def window_pads(
    dims: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> list[int]:
    """All beginnings, then all ends."""
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = (
            max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
            for n, k, s, d in zip(dims, kernel, strides, dilations, strict=True)
        )
        both = [_halves(total, auto_pad) for total in totals]
        return [before for before, _ in both] + [after for _, after in both]
    return [0] * (2 * len(dims)) if pads is None or auto_pad == "VALID" else list(pads)


@op("Conv")
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    axes = x.ndim - 2
    strides, dilations = _filled(strides, axes), _filled(dilations, axes)
    pads = window_pads(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return x.conv2d(w, b, group, tuple(strides), tuple(dilations), torch_pads(pads))


@op("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    axes = x.ndim - 2
    strides, dilations = _filled(strides, axes), _filled(dilations, axes)
    output_padding = [0] * axes if output_padding is None else list(output_padding)
    full = [
        s * (n - 1) + (k - 1) * d + 1 + more
        for n, k, s, d, more in zip(x.shape[2:], w.shape[2:], strides, dilations, output_padding, strict=True)
    ]
    if output_shape is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if output_shape is not None:  # it says what is cut off, in full, perhaps less than nothing
        lower = "SAME_UPPER" if auto_pad == "SAME_UPPER" else "SAME_LOWER"
        both = [_halves(n - wanted, lower) for n, wanted in zip(full, output_shape[-axes:], strict=True)]
        pads = [before for before, _ in both] + [after for _, after in both]
    elif pads is None or auto_pad == "VALID":
        pads = [0] * (2 * axes)
    y = x.conv_transpose2d(w, None, group, tuple(strides), tuple(dilations), 0, tuple(output_padding))
    y = y.pad(tuple((max(0, -before), max(0, -after)) for before, after in _around(pads, axes)))
    y = y.shrink(tuple((max(0, a), n - max(0, b)) for (a, b), n in zip(_around(pads, axes), y.shape, strict=True)))
    return y if b is None else y + b.reshape(1, -1, *(1,) * axes)


def _around(pads: Sequence[int], axes: int) -> list[tuple[int, int]]:
    return [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)]


@op("AveragePool")
def average_pool(
    x: Tensor,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    axes = x.ndim - 2
    strides, dilations = _filled(strides, axes), _filled(dilations, axes)
    pads = torch_pads(window_pads(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad))
    return x.avg_pool2d(
        tuple(kernel_shape), tuple(strides), tuple(dilations), pads, bool(ceil_mode), bool(count_include_pad)
    )


@op("MaxPool")
def max_pool(
    x: Tensor,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    outputs: int = 1,
):
    axes = x.ndim - 2
    strides, dilations = _filled(strides, axes), _filled(dilations, axes)
    pads = torch_pads(window_pads(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad))
    options = (tuple(kernel_shape), tuple(strides), tuple(dilations), pads, bool(ceil_mode))
    if outputs == 1:
        return x.max_pool2d(*options)
    y, places = x.max_pool2d(*options, return_indices=True)
    return y, _in_whole_tensor(places.cast(dtypes.int64), x, storage_order)


def _in_whole_tensor(places: Tensor, x: Tensor, storage_order: int) -> Tensor:
    """Places within an image become those in all of `x`, which lies row by row, or column by column."""
    image = math.prod(x.shape[2:])
    if storage_order:
        columns = x.shape[-1]
        places = (places % columns) * (image // columns) + places // columns
    images = Tensor.arange(x.shape[0] * x.shape[1], dtype=dtypes.int64) * image
    return places + images.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


@op("MaxUnpool", host=(2,))
def max_unpool(
    x: Tensor,
    places: Tensor,
    output_shape: np.ndarray | None = None,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    axes = x.ndim - 2
    pads = [0] * (2 * axes) if pads is None else pads
    shape = list(x.shape[:2]) + [
        s * (n - 1) + k - before - after
        for n, k, s, before, after in zip(x.shape[2:], kernel_shape, _filled(strides, axes), pads[:axes], pads[axes:])
    ]
    # The places count in the shape that follows from the window; a larger one has its rows further apart.
    flat = Tensor.zeros(math.prod(shape), dtype=x.dtype).scatter(0, places.flatten(), x.flatten())
    y = flat.reshape(shape)
    if output_shape is None:
        return y
    return y.pad(tuple((0, int(wanted) - n) for wanted, n in zip(output_shape, shape, strict=True)))


@op("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@op("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.max(tuple(range(2, x.ndim)), keepdim=True)


@op("LpPool")
def lp_pool(
    x: Tensor,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    means = average_pool(x.abs().pow(p), kernel_shape, auto_pad, ceil_mode, 1, dilations, pads, strides)
    return (means * math.prod(kernel_shape)).pow(1 / p)


@op("Col2Im", host=(1, 2))
def col2im(
    x: Tensor,
    image_shape: np.ndarray,
    block_shape: np.ndarray,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Each column of `x` is a window of an image; where windows overlap their elements are added."""
    image, block = image_shape.tolist(), block_shape.tolist()
    axes = len(image)
    strides, dilations = _filled(strides, axes), _filled(dilations, axes)
    pads = [0] * (2 * axes) if pads is None else pads
    padded = [n + a + b for n, a, b in zip(image, pads[:axes], pads[axes:], strict=True)]
    # Of each element of x its place in the padded image.
    places = np.zeros((1, 1), np.int64)
    for n, k, s, d in zip(padded, block, strides, dilations, strict=True):
        along = np.arange(k)[:, None] * d + np.arange((n - (k - 1) * d - 1) // s + 1) * s
        places = (places[:, None, :, None] * n + along[None, :, None, :]).reshape(
            places.shape[0] * along.shape[0], places.shape[1] * along.shape[1]
        )
    batch, channels = x.shape[0], x.shape[1] // math.prod(block)
    x = x.reshape(batch * channels, places.size)
    index = Tensor(places.reshape(1, -1)).expand(x.shape)
    y = Tensor.zeros(batch * channels, math.prod(padded), dtype=x.dtype).scatter_reduce(1, index, x, "sum")
    y = y.reshape(batch, channels, *padded)
    return y.shrink(
        ((0, batch), (0, channels), *((a, a + n) for a, n in zip(pads[:axes], image, strict=True)))
    )
