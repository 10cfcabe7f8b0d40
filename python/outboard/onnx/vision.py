"""Operators on boxes and on places in an image."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from outboard import Tensor, dtypes
from outboard.onnx.registry import op


def _unnormal(places: Tensor, n: int, align_corners: int) -> Tensor:
    """-1 and 1 are the middles of the first and last element, or their outer edges."""
    return (places + 1) * ((n - 1) / 2) if align_corners else ((places + 1) * n - 1) / 2


def _reflected(places: Tensor, n: int, align_corners: int) -> Tensor:
    low, span = (0.0, n - 1.0) if align_corners else (-0.5, float(n))
    if span == 0:
        return places * 0
    away = (places - low).abs()
    turns = (away / span).floor()
    rest = away - turns * span
    return low + (turns % 2 == 0).where(rest, span - rest)


def _pixels(x: Tensor, rows: Tensor, columns: Tensor, mode: str, align_corners: int) -> Tensor:
    """x [n, c, h, w] at integer places [n, out], as floats; [n, c, out]."""
    n, c, h, w = x.shape
    inside = None
    if mode == "zeros":
        inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
    elif mode == "reflection":
        rows, columns = _reflected(rows, h, align_corners), _reflected(columns, w, align_corners)
    rows, columns = rows.clip(0, h - 1).cast(dtypes.int32), columns.clip(0, w - 1).cast(dtypes.int32)
    places = (rows * w + columns).unsqueeze(1).expand(n, c, rows.shape[1])
    taken = x.reshape(n, c, h * w).gather(2, places)
    return taken if inside is None else inside.unsqueeze(1).where(taken, 0)


def _cubic(distance: Tensor, a: float = -0.75) -> list[Tensor]:
    """Weights of the four neighbours around a place that lies `distance` behind the second one."""

    def near(t: Tensor) -> Tensor:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Tensor) -> Tensor:
        return ((t - 5) * t + 8) * t * a - 4 * a

    return [far(distance + 1), near(distance), near(1 - distance), far(2 - distance)]


def _between(x: Tensor, rows: Tensor, columns: Tensor, cubic: bool, mode: str, align_corners: int) -> Tensor:
    """As _pixels, at places between: of the two or four neighbours along each axis."""
    top, left = rows.floor(), columns.floor()
    down, right = rows - top, columns - left
    row_weights = _cubic(down) if cubic else [1 - down, down]
    column_weights = _cubic(right) if cubic else [1 - right, right]
    first = -1 if cubic else 0
    parts = (
        _pixels(x, top + i, left + j, mode, align_corners) * (row_weight * column_weight).unsqueeze(1)
        for i, row_weight in enumerate(row_weights, first)
        for j, column_weight in enumerate(column_weights, first)
    )
    return functools.reduce(Tensor.add, parts)


@op("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Tensor:
    if x.ndim != 4:
        raise NotImplementedError(f"GridSample of {x.ndim - 2} axes")
    n, c, h, w = x.shape
    columns = _unnormal(grid[..., 0].reshape(n, -1), w, align_corners)
    rows = _unnormal(grid[..., 1].reshape(n, -1), h, align_corners)
    if padding_mode == "border" and mode not in ("bicubic", "cubic"):
        rows, columns = rows.clip(0, h - 1), columns.clip(0, w - 1)
    elif padding_mode == "reflection" and mode not in ("bicubic", "cubic"):
        rows, columns = _reflected(rows, h, align_corners), _reflected(columns, w, align_corners)

    if mode == "nearest":
        y = _pixels(x, rows.round(), columns.round(), padding_mode, align_corners)
    else:
        y = _between(x, rows, columns, mode in ("bicubic", "cubic"), padding_mode, align_corners)
    return y.reshape(n, c, *grid.shape[1:3]).cast(x.dtype)


@op("DeformConv")
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """A convolution each of whose elements is taken `offset` away from its place, and counts `mask` times."""
    n, c, h, width = x.shape
    kernel, out = w.shape[2:], offset.shape[2:]
    strides, dilations, pads = strides or (1, 1), dilations or (1, 1), pads or (0, 0, 0, 0)
    taps = math.prod(kernel)
    offset = offset.reshape(n * offset_group, taps, 2, *out)

    def places(axis: int) -> Tensor:
        """[n * offset groups, taps * out]: where the axis is read."""
        tap = np.indices(tuple(kernel))[axis].reshape(taps, 1, 1) * dilations[axis]
        start = np.indices(tuple(out))[axis] * strides[axis] - pads[axis]
        return (offset[:, :, axis] + Tensor((tap + start).astype(np.float32))).flatten(1)

    images = x.reshape(n * offset_group, c // offset_group, h, width)
    taken = _between(images, places(0), places(1), False, "zeros", 0)
    if mask is not None:
        taken = taken * mask.reshape(n * offset_group, 1, -1)
    taken = taken.reshape(n, group, c // group * taps, math.prod(out))
    y = w.reshape(group, w.shape[0] // group, -1).matmul(taken).reshape(n, w.shape[0], *out)
    return y if b is None else y + b.reshape(1, -1, 1, 1)


@op("AffineGrid", host=(1,))
def affine_grid(theta: Tensor, size: np.ndarray, align_corners: int = 0) -> Tensor:
    dims = [int(n) for n in size[2:]]
    axes = [
        np.linspace(-1, 1, n) if align_corners and n > 1 else (2 * np.arange(n) + 1) / n - 1 for n in dims
    ]
    mesh = np.meshgrid(*axes, indexing="ij")[::-1]  # the last axis comes first in a grid
    places = np.stack([*mesh, np.ones(dims)], -1).reshape(1, -1, len(dims) + 1).astype(np.float32)
    return Tensor(places).cast(theta.dtype).matmul(theta.transpose(1, 2)).reshape(-1, *dims, len(dims))


@op("RoiAlign")
def roi_align_10(x: Tensor, rois: Tensor, batch_indices: Tensor, **options) -> Tensor:
    return roi_align(x, rois, batch_indices, "output_half_pixel", **options)


@op("RoiAlign", since=16, host=(1,))
def roi_align(
    x: Tensor,
    rois: np.ndarray,
    batch_indices: Tensor,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Samples each region at the same distances, an own number of times where `sampling_ratio` is 0: it is fetched."""
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    begin = rois[:, :2].astype(np.float64) * spatial_scale - half
    span = rois[:, 2:].astype(np.float64) * spatial_scale - half - begin
    if not half:
        span = np.maximum(span, 1)
    regions = []
    for i in range(len(rois)):
        image = x[batch_indices[i]].unsqueeze(0)
        rows, columns = (
            _samples(begin[i, axis], span[i, axis], count, sampling_ratio)
            for axis, count in ((1, output_height), (0, output_width))
        )
        regions.append(_aligned(image, rows, columns, output_height, output_width, mode))
    return Tensor.cat(*regions).cast(x.dtype)


def _samples(begin: float, span: float, count: int, ratio: int) -> np.ndarray:
    """[count * ratio]: where one axis of a region is sampled."""
    ratio = ratio if ratio > 0 else max(1, int(np.ceil(span / count)))
    return begin + (np.arange(count * ratio) + 0.5) * (span / (count * ratio))


def _aligned(image: Tensor, rows: np.ndarray, columns: np.ndarray, height: int, width: int, mode: str) -> Tensor:
    """The samples of each cell joined: their mean, or the largest of what they are sums of."""
    _, channels, h, w = image.shape
    row_weights, column_weights = _linear(rows, h), _linear(columns, w)
    if mode == "avg":  # means of linear samples are linear: two products
        row_means = row_weights.reshape(height, -1, h).mean(1)
        column_means = column_weights.reshape(width, -1, w).mean(1)
        return _matrix(row_means).matmul(image.cast(dtypes.float32)).matmul(_matrix(column_means.T))
    parts = [
        _matrix(a).matmul(image.cast(dtypes.float32)).matmul(_matrix(b.T))
        for a in _corners(row_weights)
        for b in _corners(column_weights)
    ]
    largest = parts[0].maximum(parts[1]).maximum(parts[2]).maximum(parts[3])
    cells = largest.reshape(1, channels, height, -1, width, len(columns) // width)
    return cells.max((3, 5))


def _matrix(values: np.ndarray) -> Tensor:
    return Tensor(np.ascontiguousarray(values, np.float32))


def _linear(places: np.ndarray, n: int) -> np.ndarray:
    """[places, n]: weights of the two neighbours; none more than one element outside."""
    inside = ((places >= -1) & (places <= n))[:, None]
    places = places.clip(0, n - 1)
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(n))) * inside


def _corners(weights: np.ndarray) -> list[np.ndarray]:
    """The first neighbour's weights, and the second's."""
    first = np.zeros_like(weights)
    rows = np.arange(len(weights))
    places = (weights > 0).argmax(1)
    first[rows, places] = weights[rows, places]
    return [first, weights - first]


@op("NonMaxSuppression", host=(0, 1, 2, 3, 4))
def non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    max_output_boxes_per_class: np.ndarray | None = None,
    iou_threshold: np.ndarray | None = None,
    score_threshold: np.ndarray | None = None,
    center_point_box: int = 0,
) -> Tensor:
    """How many boxes stay is the shape of the result, and each one depends on those before: the values are fetched."""
    most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class)
    overlap = 0.0 if iou_threshold is None else float(iou_threshold)
    if center_point_box:
        half = boxes[..., [3, 2]] / 2
        middle = boxes[..., [1, 0]]
        boxes = np.concatenate([middle - half, middle + half], -1)
    low = np.minimum(boxes[..., :2], boxes[..., 2:])
    high = np.maximum(boxes[..., :2], boxes[..., 2:])
    chosen: list[Sequence[int]] = []
    for image in range(scores.shape[0]):
        for kind in range(scores.shape[1]):
            kept: list[int] = []
            for box in np.argsort(-scores[image, kind], kind="stable"):
                if len(kept) >= most or (score_threshold is not None and scores[image, kind, box] <= score_threshold):
                    break
                if all(_overlap(low[image], high[image], box, other) <= overlap for other in kept):
                    kept.append(int(box))
            chosen += [(image, kind, box) for box in kept]
    return Tensor(np.array(chosen, np.int64).reshape(-1, 3))


def _overlap(low: np.ndarray, high: np.ndarray, a: int, b: int) -> float:
    """Intersection over union."""
    common = np.maximum(0, np.minimum(high[a], high[b]) - np.maximum(low[a], low[b])).prod()
    union = (high[a] - low[a]).prod() + (high[b] - low[b]).prod() - common
    return common / union if union > 0 else 0.0
