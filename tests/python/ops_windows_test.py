"""Convolutions, pools, padding, resizing and attention against PyTorch, forward and gradient."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ops import Case
from outboard import Tensor, dtypes

LINE, IMAGE, VOLUME = (2, 4, 9), (2, 4, 7, 6), (1, 2, 5, 4, 6)


def conv(name, x, weight, biased=True, **options):
    """A case of conv2d over the axes of x; `their` holds what PyTorch calls otherwise."""
    their = {**options, **options.pop("their", {})}
    their.pop("their", None)
    function = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(x)]
    inputs = [x, weight] + ([(weight[0],)] if biased else [])
    return Case(f"conv{len(x) - 2}d {name}", inputs, lambda *t: t[0].conv2d(*t[1:], **options),
                lambda *t: function(*t, **their), atol=1e-4)


def transposed(name, x, weight, biased=True, groups=1, **options):
    function = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}[len(x)]
    inputs = [x, weight] + ([(weight[1] * groups,)] if biased else [])
    return Case(f"conv_transpose{len(x) - 2}d {name}", inputs,
                lambda *t: t[0].conv_transpose2d(*t[1:], groups=groups, **options),
                lambda *t: function(*t, groups=groups, **options), atol=1e-4)


CONVOLUTIONS = [
    conv("plain", LINE, (6, 4, 3)),
    conv("no bias", LINE, (6, 4, 3), biased=False),
    conv("one channel, kernel 1", (1, 1, 5), (1, 1, 1)),
    conv("groups", LINE, (6, 2, 3), groups=2),
    conv("depthwise", LINE, (4, 1, 2), groups=4),
    conv("stride", LINE, (2, 4, 3), stride=2),
    conv("dilation", LINE, (2, 4, 3), dilation=3),
    conv("padding", LINE, (2, 4, 3), padding=2),
    conv("everything", LINE, (6, 2, 3), groups=2, stride=2, dilation=2, padding=3),
    conv("plain", IMAGE, (5, 4, 3, 3)),
    conv("no bias", IMAGE, (5, 4, 2, 3), biased=False),
    conv("kernel 1", IMAGE, (3, 4, 1, 1)),
    conv("kernel as large as the image", IMAGE, (3, 4, 7, 6)),
    conv("groups", IMAGE, (8, 2, 3, 2), groups=2),
    conv("depthwise", IMAGE, (8, 1, 3, 3), groups=4, padding=1),
    conv("stride", IMAGE, (2, 4, 3, 3), stride=2),
    conv("strides", IMAGE, (2, 4, 2, 2), stride=(3, 2)),
    conv("stride beyond the kernel", IMAGE, (2, 4, 2, 2), stride=3),
    conv("dilations", IMAGE, (2, 4, 2, 3), dilation=(3, 2)),
    conv("paddings", IMAGE, (2, 4, 3, 3), padding=(2, 1)),
    conv("everything", IMAGE, (4, 2, 3, 2), groups=2, stride=(2, 1), dilation=(1, 2), padding=(1, 2)),
    conv("plain", VOLUME, (3, 2, 2, 3, 2)),
    conv("groups and strides", VOLUME, (4, 1, 2, 2, 3), groups=2, stride=(1, 2, 2), padding=1),
    conv("dilation", VOLUME, (2, 2, 2, 2, 2), dilation=(2, 1, 3), padding=(0, 1, 2)),
    Case("conv2d padding on each side", [IMAGE, (3, 4, 3, 3)], lambda x, w: x.conv2d(w, padding=(1, 0, 2, 3)),
         lambda x, w: F.conv2d(F.pad(x, (1, 0, 2, 3)), w), atol=1e-4),
    Case("conv2d negative padding", [IMAGE, (3, 4, 3, 3)], lambda x, w: x.conv2d(w, padding=(-1, 0, 1, -2)),
         lambda x, w: F.conv2d(F.pad(x, (-1, 0, 1, -2)), w), atol=1e-4),
    Case("conv1d padding on each side", [LINE, (3, 4, 3)], lambda x, w: x.conv2d(w, padding=(0, 2)),
         lambda x, w: F.conv1d(F.pad(x, (0, 2)), w), atol=1e-4),
    transposed("plain", LINE, (4, 3, 3)),
    transposed("stride", LINE, (4, 3, 3), stride=2),
    transposed("everything", LINE, (4, 2, 3), groups=2, stride=3, padding=1, output_padding=2, dilation=2),
    transposed("plain", IMAGE, (4, 3, 3, 2)),
    transposed("no bias", IMAGE, (4, 3, 3, 2), biased=False),
    transposed("strides", IMAGE, (4, 3, 3, 2), stride=(2, 3)),
    transposed("padding", IMAGE, (4, 3, 3, 3), padding=(1, 2)),
    transposed("padding beyond the kernel", IMAGE, (4, 2, 2, 2), padding=2),
    transposed("groups", IMAGE, (4, 2, 3, 3), groups=2, stride=2, padding=1, output_padding=1),
    transposed("dilation", IMAGE, (4, 2, 2, 3), dilation=(2, 3)),
    transposed("volume", VOLUME, (2, 2, 2, 1, 2), stride=(2, 1, 2), padding=(1, 0, 0)),
]


def pools(name, x, kernel, **options):
    """Both pools, over as many axes as the kernel has."""
    axes = len(kernel) if isinstance(kernel, tuple) else 2
    largest = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[axes]
    mean = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[axes]
    cases = [Case(f"max_pool{axes}d {name}", [x], lambda t: t.max_pool2d(kernel, **options),
                  lambda t: largest(t, kernel, **options))]
    if "dilation" not in options:
        cases.append(Case(f"avg_pool{axes}d {name}", [x], lambda t: t.avg_pool2d(kernel, **options),
                          lambda t: mean(t, kernel, **options)))
        cases.append(Case(f"avg_pool{axes}d {name} padding not counted", [x],
                          lambda t: t.avg_pool2d(kernel, **options, count_include_pad=False),
                          lambda t: mean(t, kernel, **options, count_include_pad=False)))
    return cases


POOLS = [
    *pools("plain", LINE, (2,)),
    *pools("overlapping", LINE, (3,), stride=2, padding=1),
    *pools("ceil", LINE, (2,), ceil_mode=True),
    *pools("dilation", LINE, (3,), dilation=2),
    *pools("plain", IMAGE, (2, 2)),
    *pools("one number", IMAGE, 3),
    *pools("stride", IMAGE, (3, 2), stride=(2, 1)),
    *pools("padding", IMAGE, (3, 3), stride=2, padding=1),
    *pools("paddings", IMAGE, (2, 3), stride=1, padding=(1, 0)),
    *pools("ceil", IMAGE, (2, 4), ceil_mode=True),
    *pools("ceil, stride, padding", IMAGE, (3, 3), stride=(2, 3), padding=1, ceil_mode=True),
    *pools("dilations", IMAGE, (2, 2), stride=1, dilation=(3, 2)),
    *pools("volume", VOLUME, (2, 2, 3)),
    *pools("volume, overlapping", VOLUME, (2, 3, 2), stride=1, padding=1),
    Case("max_pool2d indices", [IMAGE], lambda x: x.max_pool2d((2, 3), stride=1, padding=1, return_indices=True),
         lambda x: [y.int() if i else y
                    for i, y in enumerate(F.max_pool2d(x, (2, 3), stride=1, padding=1, return_indices=True))]),
    Case("max_pool1d indices", [LINE], lambda x: x.max_pool2d((3,), stride=2, return_indices=True)[1],
         lambda x: F.max_pool1d(x, 3, stride=2, return_indices=True)[1].int(), gradient=False),
    Case("max_unpool2d", [IMAGE], lambda x: x.max_pool2d(return_indices=True)[0].max_unpool2d(
        x.max_pool2d(return_indices=True)[1]),
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
    Case("max_unpool2d output_size", [IMAGE], lambda x: x.max_pool2d(return_indices=True)[0].max_unpool2d(
        x.max_pool2d(return_indices=True)[1], output_size=(2, 4, 7, 6)),
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(2, 4, 7, 6))),
]


def pad(name, x, sides, mode="constant", value=0.0):
    return Case(f"pad {mode} {name}", [x], lambda t: t.pad(sides, mode, value),
                lambda t: F.pad(t, sides, mode, value) if mode == "constant" else F.pad(t, sides, mode))


PADDINGS = [
    pad("one axis", LINE, (1, 2)),
    pad("value", LINE, (1, 2), value=-1.5),
    pad("infinity", LINE, (1, 0), value=float("-inf")),
    pad("two axes", IMAGE, (1, 2, 0, 3)),
    pad("negative", IMAGE, (-1, 2, 1, -3)),
    pad("negative, value", IMAGE, (-1, 2, 1, -3), value=2.5),
    pad("all axes", IMAGE, (1, 0, 0, 1, 2, 0, 0, 1), value=1.0),
    pad("one axis", LINE, (3, 2), "reflect"),
    pad("two axes", IMAGE, (1, 2, 3, 0), "reflect"),
    pad("one axis", LINE, (4, 2), "replicate"),
    pad("two axes", IMAGE, (1, 9, 0, 3), "replicate"),
    pad("three axes", VOLUME, (1, 2, 0, 3, 1, 1), "replicate"),
    pad("one axis", LINE, (3, 9), "circular"),
    pad("two axes", IMAGE, (1, 2, 3, 0), "circular"),
    Case("pad grouped", [(3, 4)], lambda x: x.pad(((1, 0), None), value=2), lambda x: F.pad(x, (0, 0, 1, 0), value=2)),
]


def resize(x, size, mode, **options):
    theirs = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear"}.get((mode, len(size)), mode)
    return Case(f"interpolate {mode} {x} to {size} {options or ''}", [x], lambda t: t.interpolate(size, mode, **options),
                lambda t: F.interpolate(t, size=size, mode=theirs, **options), atol=1e-4)


RESIZING = [
    resize(LINE, (14,), "linear"),
    resize(LINE, (4,), "linear"),
    resize(LINE, (1,), "linear"),
    resize(LINE, (13,), "linear", align_corners=True),
    resize(LINE, (1,), "linear", align_corners=True),
    resize(IMAGE, (14, 9), "linear"),
    resize(IMAGE, (3, 6), "linear"),
    resize(IMAGE, (5, 11), "linear", align_corners=True),
    resize(VOLUME, (6, 5, 4), "linear"),
    resize(LINE, (21,), "nearest"),
    resize(LINE, (4,), "nearest"),
    resize(IMAGE, (14, 12), "nearest"),
    resize(IMAGE, (10, 4), "nearest"),
    resize(VOLUME, (10, 6, 3), "nearest"),
    resize(LINE, (20,), "nearest-exact"),
    resize(IMAGE, (4, 9), "nearest-exact"),
    resize(IMAGE, (21, 6), "nearest-exact"),
]


def attention(query, key, value, mask, is_causal):
    """PyTorch 1.13 has none with a public name: the formula."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1]**0.5
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ value


SEEN = np.random.default_rng(0).random((5, 7)) < 0.7
SEEN[:, 0] = True
ATTENTION = [
    Case("attention", [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], lambda q, k, v: q.scaled_dot_product_attention(k, v),
         lambda q, k, v: attention(q, k, v, None, False)),
    Case("attention of three axes", [(3, 5, 4), (3, 7, 4), (3, 7, 4)], lambda q, k, v: q.scaled_dot_product_attention(k, v),
         lambda q, k, v: attention(q, k, v, None, False)),
    Case("attention, keys for all heads", [(2, 3, 5, 4), (7, 4), (7, 4)], lambda q, k, v: q.scaled_dot_product_attention(k, v),
         lambda q, k, v: attention(q, k, v, None, False)),
    Case("attention, causal", [(2, 6, 4)] * 3, lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
         lambda q, k, v: attention(q, k, v, None, True)),
    Case("attention, causal, more keys", [(2, 5, 4), (2, 7, 4), (2, 7, 4)],
         lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True), lambda q, k, v: attention(q, k, v, None, True)),
    Case("attention, mask of bool", [(2, 5, 4), (2, 7, 4), (2, 7, 4), SEEN],
         lambda q, k, v, m: q.scaled_dot_product_attention(k, v, attn_mask=m),
         lambda q, k, v, m: attention(q, k, v, m, False)),
    Case("attention, mask of numbers", [(2, 5, 4), (2, 7, 4), (2, 7, 4), (2, 5, 7)],
         lambda q, k, v, m: q.scaled_dot_product_attention(k, v, m), lambda q, k, v, m: attention(q, k, v, m, False)),
    Case("attention, fewer heads of keys", [(2, 6, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4)],
         lambda q, k, v: q.scaled_dot_product_attention(k, v, enable_gqa=True),
         lambda q, k, v: attention(q, k.repeat_interleave(3, -3), v.repeat_interleave(3, -3), None, False)),
    Case("attention, one head of keys, causal", [(1, 4, 5, 4), (1, 1, 5, 4), (1, 1, 5, 4)],
         lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True, enable_gqa=True),
         lambda q, k, v: attention(q, k, v, None, True)),
]

NORMS = [
    *[Case(f"normalize p {p}", [(3, 4, 5)], lambda x, p=p: x.normalize(p, dim=2), lambda x, p=p: F.normalize(x, p, dim=2))
      for p in (1, 2, 3.0, float("inf"))],
    Case("normalize", [(3, 4)], lambda x: x.normalize(), lambda x: F.normalize(x)),
    Case("layernorm", [(3, 4, 5)], lambda x: x.layernorm(), lambda x: F.layer_norm(x, (5,))),
    Case("layernorm axes", [(3, 4, 5)], lambda x: x.layernorm((-1, -2), eps=0.1), lambda x: F.layer_norm(x, (4, 5), eps=0.1)),
    Case("layernorm first axis", [(3, 4)], lambda x: x.layernorm(0), lambda x: F.layer_norm(x.T, (3,)).T),
    Case("batchnorm", [(4, 3, 5), (3,), (3,), (3,), np.array([0.5, 1, 2], dtype=np.float32)],
         lambda x, w, b, m, s: x.batchnorm(w, b, m, s),
         lambda x, w, b, m, s: (x - m[:, None]) * w[:, None] * s[:, None] + b[:, None]),
    Case("batchnorm last axis", [(4, 3), (3,), (3,)], lambda x, m, s: x.batchnorm(None, None, m, s, axis=-1),
         lambda x, m, s: (x - m) * s),
    Case("batchnorm two axes", [(4, 3, 2), (4, 2), (4, 2)], lambda x, m, s: x.batchnorm(None, None, m, s, axis=(0, 2)),
         lambda x, m, s: (x - m[:, None]) * s[:, None]),
    Case("linear", [(2, 3), (3, 4), (4,)], lambda x, w, b: x.linear(w, b), lambda x, w, b: x @ w + b),
    Case("linear of a vector", [(2, 3), (3,)], lambda x, w: x.linear(w), lambda x, w: x * w),
    Case("matmul", [(2, 1, 3, 4), (5, 4, 2)], lambda x, y: x.matmul(y), lambda x, y: x @ y),
    Case("matmul reversed", [(4, 2), (3, 4)], lambda x, y: x.matmul(y, reverse=True), lambda x, y: y @ x),
    Case("dot of vectors", [(4,), (4,)], lambda x, y: x.dot(y), lambda x, y: x @ y),
]


@pytest.mark.parametrize("case", CONVOLUTIONS + POOLS + PADDINGS + RESIZING + ATTENTION + NORMS, ids=str)
def test_as_pytorch(case):
    case.check()


def test_types_of_results():
    halves, floats = Tensor.ones(1, 2, 4, dtype=dtypes.half), Tensor.ones(3, 2, 2)
    assert halves.conv2d(floats).dtype == dtypes.float
    assert halves.conv2d(halves[:, :, :2]).dtype == dtypes.half
    assert halves.conv2d(halves[:, :, :2], dtype=dtypes.float).dtype == dtypes.float
    assert halves.matmul(halves.transpose(1, 2), dtype=dtypes.float).dtype == dtypes.float
    assert halves.linear(halves[0, 0], dtype="float").dtype == dtypes.float
    integers = Tensor.arange(8).reshape(1, 1, 8)
    assert integers.max_pool2d((2,)).dtype == dtypes.int and integers.avg_pool2d((2,)).dtype == dtypes.float
    assert integers.pad((1, 1), value=2).dtype == dtypes.int and integers.pad((1, 1), value=0.5).dtype == dtypes.float
    assert halves.scaled_dot_product_attention(halves, halves).dtype == dtypes.half


def test_sums_in_another_type():
    large = Tensor.full((1, 4), 200, dtype=dtypes.uint8)
    assert large.matmul(large.transpose(0, 1), dtype=dtypes.int).tolist() == [[160000]]
    assert large.matmul(large.transpose(0, 1)).tolist() == [[0]]
    assert (Tensor([[True, False]]) @ Tensor([[True], [True]])).tolist() == [[True]]


def test_largest_of_bool_and_of_nan():
    assert Tensor([[True, False, False, False]]).max_pool2d((2,)).tolist() == [[True, False]]
    values, places = Tensor([1.0, float("nan"), 3.0, 4.0]).max_pool2d((4,), return_indices=True)
    assert np.isnan(values.numpy()).all() and places.tolist() == [1]


def test_sequential():
    assert Tensor([1, 2]).sequential([lambda x: x * 2, lambda x: x + 1]).tolist() == [3, 5]


@pytest.mark.parametrize("error, wrong", [
    (ValueError, lambda x: x.conv2d(Tensor.ones(1, 3, 2, 2))),
    (ValueError, lambda x: x.conv2d(Tensor.ones(1, 4, 9, 9))),
    (ValueError, lambda x: x.conv2d(Tensor.ones(1, 4, 2, 2), padding=(1, 2, 3))),
    (ValueError, lambda x: x.conv2d(Tensor.ones(1, 4, 2, 2), stride=(1, 2, 3))),
    (ValueError, lambda x: x.conv2d(Tensor.ones(1, 4, 2, 2), groups=3)),
    (ValueError, lambda x: x.max_pool2d((9, 9))),
    (ValueError, lambda x: x.avg_pool2d(padding=(1,))),
    (ValueError, lambda x: x.pad((1, 2, 3))),
    (ValueError, lambda x: x.pad(((1, 2), (3, 4)))),
    (ValueError, lambda x: x.pad((9, 0), mode="reflect")),
    (ValueError, lambda x: x.pad((9, 0), mode="circular")),
    (NotImplementedError, lambda x: x.pad((1, 0), mode="wrap")),
    (ValueError, lambda x: x.interpolate((2, 2), mode="cubic")),
    (ValueError, lambda x: x.interpolate((2, 2), mode="nearest", align_corners=True)),
    (RuntimeError, lambda x: x.scaled_dot_product_attention(x, x, attn_mask=x, is_causal=True)),
    (RuntimeError, lambda x: x.dot(Tensor.ones(3))),
    (RuntimeError, lambda x: x.dot(Tensor(1.0))),
    (TypeError, lambda x: x.conv2d(3)),
    (TypeError, lambda x: x.max_pool2d("2")),
])
def test_mistakes(error, wrong):
    with pytest.raises(error):
        wrong(Tensor.ones(*IMAGE))
