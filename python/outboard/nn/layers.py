"""Layers of networks: callables that hold their parameters, under the names that tinygrad gives them.

What they compute is one call of the C++ library each; initial values are uniform within tinygrad's bounds.
"""
import math
from collections.abc import Sequence

from outboard import _core
from outboard._core import Tensor
from outboard.dtypes import dtypes
from outboard.helpers import make_tuple


def _uniform(*shape: int, bound: float) -> Tensor:
    return Tensor.uniform(*shape, low=-bound, high=bound)


def _same_padding(kernel_size: tuple[int, ...], dilation: int | Sequence[int]) -> tuple[int, ...]:
    """As many places as there are elements: an odd rest goes to the end. From the last axis on, as pad takes it."""
    missing = [d * (k - 1) for d, k in zip(make_tuple(dilation, len(kernel_size)), kernel_size)]
    return tuple(side for m in reversed(missing) for side in (m // 2, m - m // 2))


def _repr(layer: object, *arguments: object, **named: object) -> str:
    """As a call that makes one, without what is as by default."""
    shown = [str(argument) for argument in arguments] + [f"{name}={value}" for name, value in named.items()]
    return f"{type(layer).__name__}({', '.join(shown)})"


def _unless(default: object, **named: object) -> dict[str, object]:
    return {name: value for name, value in named.items() if value != default}


class Linear:
    """(..., in_features) to (..., out_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        bound = 1 / math.sqrt(in_features)
        self.weight = _uniform(out_features, in_features, bound=bound)
        self.bias = _uniform(out_features, bound=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight.transpose(), self.bias)

    def __repr__(self) -> str:
        return _repr(self, *reversed(self.weight.shape), **_unless(True, bias=self.bias is not None))


class Conv2d:
    """A convolution over as many axes as the kernel has: see Tensor.conv2d. `padding` may be "same" without a stride."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int], stride=1,
                 padding: int | Sequence[int] | str = 0, dilation=1, groups: int = 1, bias: bool = True):
        self.kernel_size = make_tuple(kernel_size, 2)
        if isinstance(padding, str):
            if padding.lower() != "same":
                raise ValueError(f"padding is numbers or 'same', not {padding!r}")
            if stride != 1:
                raise ValueError("padding='same' has no meaning with a stride")
            padding = _same_padding(self.kernel_size, dilation)
        self.stride, self.dilation, self.groups, self.padding = stride, dilation, groups, padding
        bound = 1 / math.sqrt(in_channels * math.prod(self.kernel_size))
        self.weight = self._weight(in_channels, out_channels, bound)
        self.bias = _uniform(out_channels, bound=bound) if bias else None

    def _weight(self, in_channels: int, out_channels: int, bound: float) -> Tensor:
        return _uniform(out_channels, in_channels // self.groups, *self.kernel_size, bound=bound)

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding)

    def _channels(self) -> tuple[int, int]:
        """In and out."""
        return self.weight.shape[1] * self.groups, self.weight.shape[0]

    def __repr__(self) -> str:
        return _repr(self, *self._channels(), self.kernel_size, **_unless(1, stride=self.stride),
                     **_unless(0, padding=self.padding, output_padding=getattr(self, "output_padding", 0)),
                     **_unless(1, dilation=self.dilation, groups=self.groups),
                     **_unless(True, bias=self.bias is not None))


def Conv1d(in_channels: int, out_channels: int, kernel_size: int, stride=1, padding: int | str = 0, dilation=1,
           groups: int = 1, bias: bool = True) -> Conv2d:
    """A Conv2d over one axis."""
    return Conv2d(in_channels, out_channels, (kernel_size,), stride, padding, dilation, groups, bias)


class ConvTranspose2d(Conv2d):
    """See Tensor.conv_transpose2d."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int], stride=1, padding=0,
                 output_padding=0, dilation=1, groups: int = 1, bias: bool = True):
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        self.output_padding = output_padding

    def _weight(self, in_channels: int, out_channels: int, bound: float) -> Tensor:
        return _uniform(in_channels, out_channels // self.groups, *self.kernel_size, bound=bound)

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv_transpose2d(self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding,
                                  self.output_padding)

    def _channels(self) -> tuple[int, int]:
        return self.weight.shape[0], self.weight.shape[1] * self.groups


def ConvTranspose1d(in_channels: int, out_channels: int, kernel_size: int, stride=1, padding=0, output_padding=0,
                    dilation=1, groups: int = 1, bias: bool = True) -> ConvTranspose2d:
    """A ConvTranspose2d over one axis."""
    return ConvTranspose2d(in_channels, out_channels, (kernel_size,), stride, padding, output_padding, dilation, groups,
                           bias)


class BatchNorm:
    """(B, C, ...) by the mean and variance of each channel: of the batch in training, which the running ones follow, of
    the running ones otherwise."""

    def __init__(self, sz: int, eps: float = 1e-5, affine: bool = True, track_running_stats: bool = True,
                 momentum: float = 0.1):
        self.eps, self.track_running_stats, self.momentum = eps, track_running_stats, momentum
        self.weight = Tensor.ones(sz) if affine else None
        self.bias = Tensor.zeros(sz) if affine else None
        self.num_batches_tracked = Tensor.zeros(dtype=dtypes.long).is_param_(False)
        if track_running_stats:
            self.running_mean = Tensor.zeros(sz).is_param_(False)
            self.running_var = Tensor.ones(sz).is_param_(False)

    def __call__(self, x: Tensor) -> Tensor:
        running = (self.running_mean, self.running_var, self.num_batches_tracked) if self.track_running_stats else (None,) * 3
        return _core.batch_norm(x, self.weight, self.bias, *running, self.momentum, self.eps)

    def __repr__(self) -> str:
        one = self.weight if self.weight is not None else self.running_mean if self.track_running_stats else None
        return _repr(self, *(() if one is None else one.shape), eps=self.eps, momentum=self.momentum,
                     **_unless(True, affine=self.weight is not None, track_running_stats=self.track_running_stats))


BatchNorm2d = BatchNorm3d = BatchNorm


class GroupNorm:
    """(B, C, ...) by mean and variance of each of `num_groups` parts of the channels."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True):
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Tensor.ones(num_channels) if affine else None
        self.bias = Tensor.zeros(num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        return _core.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def __repr__(self) -> str:
        return _repr(self, self.num_groups, self.num_channels, eps=self.eps,
                     **_unless(True, affine=self.weight is not None))


class InstanceNorm:
    """(B, C, ...) by mean and variance of each channel of each element of the batch."""

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True):
        self.num_features, self.eps = num_features, eps
        self.weight = Tensor.ones(num_features) if affine else None
        self.bias = Tensor.zeros(num_features) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        return _core.group_norm(x, self.num_features, self.weight, self.bias, self.eps)

    def __repr__(self) -> str:
        return _repr(self, self.num_features, eps=self.eps, **_unless(True, affine=self.weight is not None))


class LayerNorm:
    """By mean and variance over the last axes, which are of `normalized_shape`."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True):
        self.normalized_shape = make_tuple(normalized_shape, 1)
        self.axis, self.eps = tuple(-1 - i for i in range(len(self.normalized_shape))), eps
        self.weight = Tensor.ones(*self.normalized_shape) if elementwise_affine else None
        self.bias = Tensor.zeros(*self.normalized_shape) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if self.normalized_shape != x.shape[-len(self.normalized_shape):]:
            _core.refuse(f"the last axes of {x.shape} are not {self.normalized_shape}")
        x = x.layernorm(self.axis, self.eps)
        return x if self.weight is None or self.bias is None else x * self.weight + self.bias

    def __repr__(self) -> str:
        return _repr(self, self.normalized_shape, eps=self.eps,
                     **_unless(True, elementwise_affine=self.weight is not None))


class LayerNorm2d(LayerNorm):
    """A LayerNorm over the channels of (B, C, H, W)."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm:
    """By the mean square over the last axis, which has `dim` elements."""

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True):
        self.eps = eps
        self.weight = Tensor.ones(dim) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        return _core.rms_norm(x, self.weight, self.eps)

    def __repr__(self) -> str:
        return _repr(self, *(() if self.weight is None else self.weight.shape), eps=self.eps,
                     **_unless(True, elementwise_affine=self.weight is not None))


class Embedding:
    """Rows of a table (vocab_size, embed_size): integers (...) to (..., embed_size)."""

    def __init__(self, vocab_size: int, embed_size: int):
        self.weight = _uniform(vocab_size, embed_size, bound=math.sqrt(6 / (vocab_size + embed_size)))

    def __call__(self, idx: Tensor) -> Tensor:
        if not dtypes.is_int(idx.dtype):
            raise TypeError(f"an embedding takes integers, not {idx.dtype}")
        return self.weight[idx]

    def __repr__(self) -> str:
        return _repr(self, *self.weight.shape)


class LSTMCell:
    """A step of a long short-term memory: x (B, input_size) and a state (h, c) of (B, hidden_size) each to the next."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
        bound = 1 / math.sqrt(hidden_size)
        self.weight_ih = _uniform(4 * hidden_size, input_size, bound=bound)
        self.weight_hh = _uniform(4 * hidden_size, hidden_size, bound=bound)
        self.bias_ih = Tensor.zeros(4 * hidden_size) if bias else None
        self.bias_hh = Tensor.zeros(4 * hidden_size) if bias else None

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return _core.lstm_cell(x, *(hc or (None, None)), self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def __repr__(self) -> str:
        return _repr(self, self.weight_ih.shape[1], self.weight_hh.shape[1],
                     **_unless(True, bias=self.bias_ih is not None))
