"""Layers against PyTorch's with the same parameters, forward and gradient; names, shapes and first values as tinygrad's."""
import math

import numpy as np
import pytest
import torch

from outboard import Tensor, dtypes, nn
from outboard.helpers import Context


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-2, 2, shape).astype(np.float32)


def tensors_of(layer) -> dict[str, Tensor]:
    return {name: value for name, value in vars(layer).items() if isinstance(value, Tensor)}


def close(got: Tensor, wanted: torch.Tensor, what: str) -> None:
    np.testing.assert_allclose(got.numpy(), wanted.detach().numpy(), rtol=1e-4, atol=2e-5, err_msg=what)


def check_as_pytorch(ours, theirs, *shapes: tuple[int, ...]) -> None:
    """One forward and backward pass with the parameters and buffers of `theirs`."""
    for name, value in theirs.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.from_numpy(values(*value.shape)).abs() + 0.1)
        getattr(ours, name).assign(Tensor(value.numpy().copy()))
    x, y = [Tensor(values(*shape)) for shape in shapes], [torch.tensor(values(*shape)) for shape in shapes]
    parameters = dict(theirs.named_parameters())
    for t in [*x, *(getattr(ours, name) for name in parameters)]:
        t.requires_grad_()
    for t in y:
        t.requires_grad_()
    got, wanted = ours(*x), theirs(*y)
    weights = values(*wanted.shape)
    (got * Tensor(weights)).sum().backward()
    (wanted * torch.from_numpy(weights)).sum().backward()
    close(got, wanted, "result")
    for i, (a, b) in enumerate(zip(x, y)):
        close(a.grad, b.grad, f"gradient of input {i}")
    for name, parameter in parameters.items():
        close(getattr(ours, name).grad, parameter.grad, f"gradient of {name}")
    for name, buffer in theirs.named_buffers():
        close(getattr(ours, name), buffer, name)


LAYERS = {
    "Linear": (lambda: nn.Linear(5, 3), lambda: torch.nn.Linear(5, 3), (2, 4, 5)),
    "Linear without bias": (lambda: nn.Linear(5, 3, bias=False), lambda: torch.nn.Linear(5, 3, bias=False), (2, 5)),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, 2, 1, groups=2), lambda: torch.nn.Conv1d(4, 6, 3, 2, 1, groups=2), (2, 4, 9)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3), lambda: torch.nn.Conv2d(4, 6, 3), (2, 4, 6, 5)),
    "Conv2d with options": (lambda: nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2, False),
                            lambda: torch.nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2, False), (2, 4, 6, 5)),
    "Conv2d same": (lambda: nn.Conv2d(2, 3, (3, 5), padding="same"), lambda: torch.nn.Conv2d(2, 3, (3, 5), padding="same"),
                    (1, 2, 6, 5)),
    "Conv2d same, dilated": (lambda: nn.Conv2d(2, 3, 3, padding="SAME", dilation=2),
                             lambda: torch.nn.Conv2d(2, 3, 3, padding="same", dilation=2), (1, 2, 6, 5)),
    "Conv1d same, even": (lambda: nn.Conv1d(2, 3, 4, padding="same"), lambda: torch.nn.Conv1d(2, 3, 4, padding="same"),
                          (1, 2, 7)),
    "Conv2d of three axes": (lambda: nn.Conv2d(2, 3, (2, 3, 2)), lambda: torch.nn.Conv3d(2, 3, (2, 3, 2)), (1, 2, 3, 4, 5)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2),
                        lambda: torch.nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2), (2, 4, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 3, 2, 1, 1),
                        lambda: torch.nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), (2, 4, 3, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 6), lambda: torch.nn.GroupNorm(2, 6), (2, 6, 3, 4)),
    "GroupNorm, eps": (lambda: nn.GroupNorm(3, 6, eps=0.5, affine=False),
                       lambda: torch.nn.GroupNorm(3, 6, eps=0.5, affine=False), (2, 6, 5)),
    "InstanceNorm": (lambda: nn.InstanceNorm(3), lambda: torch.nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 5)),
    "InstanceNorm of a line": (lambda: nn.InstanceNorm(3, affine=False), lambda: torch.nn.InstanceNorm1d(3), (2, 3, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(5), lambda: torch.nn.LayerNorm(5), (2, 3, 5)),
    "LayerNorm of two axes": (lambda: nn.LayerNorm((3, 5), eps=0.1), lambda: torch.nn.LayerNorm((3, 5), eps=0.1), (2, 3, 5)),
    "LayerNorm without weights": (lambda: nn.LayerNorm(5, elementwise_affine=False),
                                  lambda: torch.nn.LayerNorm(5, elementwise_affine=False), (2, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_is_pytorchs(name):
    ours, theirs, shape = LAYERS[name]
    check_as_pytorch(ours(), theirs(), shape)


@pytest.mark.parametrize("shape", [(4, 3, 5), (4, 3, 2, 3), (4, 3, 2, 2, 2), (4, 3)])
@pytest.mark.parametrize("affine", [True, False])
def test_batchnorm_in_training_and_after_it(shape, affine):
    theirs = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}[len(shape)](
        3, eps=0.1, momentum=0.3, affine=affine)
    ours = nn.BatchNorm(3, eps=0.1, momentum=0.3, affine=affine)
    with Context(TRAINING=1):
        check_as_pytorch(ours, theirs, shape)
    theirs.eval()
    close(ours(Tensor(values(*shape))), theirs(torch.tensor(values(*shape))), "outside of training")
    assert ours.num_batches_tracked.item() == theirs.num_batches_tracked.item()


def test_batchnorm_without_running_statistics():
    theirs = torch.nn.BatchNorm2d(3, track_running_stats=False)
    ours = nn.BatchNorm2d(3, track_running_stats=False)
    x = values(2, 3, 4, 5)
    close(ours(Tensor(x)), theirs(torch.tensor(x)), "outside of training")
    with Context(TRAINING=1):
        close(ours(Tensor(x)), theirs(torch.tensor(x)), "in training")
    assert not hasattr(ours, "running_mean")


def test_batchnorm_over_many_batches_is_one_graph():
    ours, theirs = nn.BatchNorm2d(2), torch.nn.BatchNorm2d(2)
    with Context(TRAINING=1):
        for step in range(4):
            x = values(3, 2, 2, 2) * (step + 1)
            close(ours(Tensor(x)), theirs(torch.tensor(x)), f"step {step}")
    close(ours.running_var, theirs.running_var, "running_var")
    assert ours.num_batches_tracked.item() == 4


def test_layernorm2d():
    x, theirs = values(2, 3, 4, 5), torch.nn.LayerNorm(3)
    close(nn.LayerNorm2d(3)(Tensor(x)), theirs(torch.tensor(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2), "result")


@pytest.mark.parametrize("affine", [True, False])
def test_rmsnorm(affine):
    x, layer = torch.tensor(values(2, 3, 5), requires_grad=True), nn.RMSNorm(5, eps=0.1, elementwise_affine=affine)
    wanted = x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt()
    ours = Tensor(x.detach().numpy())
    ours.requires_grad_()
    if affine:
        layer.weight.assign(Tensor([1.0, 2, 3, 4, 5]))
        wanted = wanted * torch.tensor([1.0, 2, 3, 4, 5])
    got = layer(ours)
    (got * got).sum().backward()
    (wanted * wanted).sum().backward()
    close(got, wanted, "result")
    close(ours.grad, x.grad, "gradient")
    assert nn.RMSNorm(5)(Tensor.ones(2, 5, dtype=dtypes.half)).dtype == dtypes.float  # the weight's


def test_embedding():
    layer, theirs, index = nn.Embedding(7, 3), torch.nn.Embedding(7, 3), [[1, 6], [0, 1]]
    layer.weight.assign(Tensor(theirs.weight.detach().numpy().copy()))
    layer.weight.requires_grad_()
    got, wanted = layer(Tensor(index)), theirs(torch.tensor(index))
    (got * got).sum().backward()
    (wanted * wanted).sum().backward()
    close(got, wanted, "result")
    close(layer.weight.grad, theirs.weight.grad, "gradient")
    with pytest.raises(TypeError):
        layer(Tensor([1.0]))


@pytest.mark.parametrize("bias", [True, False])
def test_lstm_cell(bias):
    layer, theirs = nn.LSTMCell(5, 3, bias), torch.nn.LSTMCell(5, 3, bias)
    for name, value in theirs.state_dict().items():
        getattr(layer, name).assign(Tensor(value.numpy().copy()))
    x = values(2, 5)
    h, c = layer(Tensor(x))
    h2, c2 = layer(Tensor(x), (h, c))
    wanted = theirs(torch.tensor(x))
    wanted2 = theirs(torch.tensor(x), wanted)
    for got, expected in zip((h, c, h2, c2), (*wanted, *wanted2)):
        close(got, expected, "state")


def as_tinygrad():
    """Constructors that are written the same for both libraries."""
    return {
        "Linear": lambda m: m.Linear(64, 48),
        "Conv1d": lambda m: m.Conv1d(16, 32, 5, groups=4),
        "Conv2d": lambda m: m.Conv2d(16, 32, 3),
        "Conv2d of a tuple": lambda m: m.Conv2d(16, 32, (3, 5), bias=False),
        "ConvTranspose1d": lambda m: m.ConvTranspose1d(16, 32, 3),
        "ConvTranspose2d": lambda m: m.ConvTranspose2d(16, 32, 3, groups=2),
        "BatchNorm": lambda m: m.BatchNorm(5),
        "BatchNorm2d without weights": lambda m: m.BatchNorm2d(5, affine=False, track_running_stats=False),
        "GroupNorm": lambda m: m.GroupNorm(2, 6),
        "InstanceNorm": lambda m: m.InstanceNorm(6),
        "LayerNorm": lambda m: m.LayerNorm((3, 4)),
        "LayerNorm2d": lambda m: m.LayerNorm2d(3),
        "RMSNorm": lambda m: m.RMSNorm(8),
        "Embedding": lambda m: m.Embedding(100, 32),
        "LSTMCell": lambda m: m.LSTMCell(16, 8),
    }


@pytest.mark.parametrize("name", as_tinygrad())
def test_names_shapes_types_and_bounds_are_tinygrads(name):
    tinygrad = pytest.importorskip("tinygrad")
    theirs = as_tinygrad()[name](tinygrad.nn)
    wanted = {key: value for key, value in vars(theirs).items() if isinstance(value, tinygrad.Tensor)}
    ours = as_tinygrad()[name](nn)
    got = tensors_of(ours)
    assert list(got) == list(wanted)
    for key, value in got.items():
        assert value.shape == wanted[key].shape, key
        assert value.dtype.name == wanted[key].dtype.name.replace("long", "int64").replace("float", "float32").replace("3232", "32")
    plain = {key: value for key, value in vars(theirs).items() if key not in wanted}
    for key, value in plain.items():
        assert getattr(ours, key) == value, key


@pytest.mark.parametrize("layer, name, bound", [
    (lambda: nn.Linear(100, 200), "weight", 0.1),
    (lambda: nn.Linear(100, 200), "bias", 0.1),
    (lambda: nn.Conv2d(16, 64, 5, groups=4), "weight", 0.05),
    (lambda: nn.ConvTranspose2d(16, 64, 5), "weight", 0.05),
    (lambda: nn.Embedding(400, 200), "weight", 0.1),
    (lambda: nn.LSTMCell(64, 100), "weight_hh", 0.1),
])
def test_first_values_are_uniform_within_the_bound(layer, name, bound):
    drawn = getattr(layer(), name).numpy()
    assert -bound <= drawn.min() < -0.9 * bound and 0.9 * bound < drawn.max() <= bound
    assert abs(drawn.std() - bound / math.sqrt(3)) < 0.1 * bound


def test_mistakes():
    with pytest.raises(ValueError):
        nn.Conv2d(1, 1, 3, padding="valid")
    with pytest.raises(ValueError):
        nn.Conv2d(1, 1, 3, padding="same", stride=2)
    with pytest.raises(ValueError):
        nn.LayerNorm(5)(Tensor.ones(2, 4))
    with pytest.raises(ValueError):
        nn.BatchNorm(5)(Tensor.ones(2, 4, 3))
    with pytest.raises(ValueError):
        nn.GroupNorm(2, 6)(Tensor.ones(2, 4, 3))
