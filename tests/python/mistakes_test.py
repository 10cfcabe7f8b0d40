"""Mistakes: what tinygrad raises for one, a program that catches it catches here too."""
import pathlib
import pickle
import tarfile
import zipfile

import pytest
import tinygrad
import tinygrad.nn.state

import outboard
import outboard.nn.state


def ones(m, *shape, **options):
    return m.Tensor.ones(*shape, device="PYTHON", **options)


# Each is done with tinygrad and with this package, in the variable `m`.
ALIKE = {
    **{f"{name} over axis {axis}": lambda m, name=name, axis=axis: getattr(ones(m, 2, 3), name)(axis)
       for axis in (5, -4)
       for name in ("sum", "mean", "max", "argmin", "softmax", "cumsum", "cummax", "flip", "unsqueeze", "squeeze",
                    "sort", "any", "std", "logsumexp", "layernorm", "flatten")},
    "transpose": lambda m: ones(m, 2, 3).transpose(0, 5),
    "transpose of one axis": lambda m: ones(m, 3).transpose(),
    "permute to an axis that is not there": lambda m: ones(m, 2, 3).permute(0, 5),
    "permute twice": lambda m: ones(m, 2, 3).permute(0, 0),
    "reshape": lambda m: ones(m, 2, 3).reshape(7),
    "expand": lambda m: ones(m, 2, 3).expand(4, 3),
    "cat along no axis": lambda m: ones(m, 2, 3).cat(ones(m, 2, 3), dim=5),
    "cat of other shapes": lambda m: ones(m, 2, 3).cat(ones(m, 2, 4), dim=0),
    "cat of other ranks": lambda m: ones(m, 2, 3).cat(ones(m, 2), dim=0),
    "stack": lambda m: m.Tensor.stack(ones(m, 2), ones(m, 3)),
    "split along no axis": lambda m: ones(m, 4, 3).split(2, dim=5),
    "split into too little": lambda m: ones(m, 4, 3).split([1, 2]),
    "chunk": lambda m: ones(m, 4, 3).chunk(0),
    "roll": lambda m: ones(m, 3).roll(1, 5),
    "repeat_interleave": lambda m: ones(m, 2).repeat_interleave(2, dim=4),
    "unflatten": lambda m: ones(m, 6).unflatten(3, (3, 2)),
    "triu": lambda m: ones(m, 3).triu(),
    "diagonal": lambda m: ones(m, 2).diagonal(),
    "size": lambda m: ones(m, 2, 3).size(5),
    "an index": lambda m: ones(m, 3)[5],
    "more indices than axes": lambda m: ones(m, 3)[0, 0],
    "an index of text": lambda m: ones(m, 3)["a"],
    "two ellipses": lambda m: ones(m, 3, 3)[..., ...],
    "addition": lambda m: (ones(m, 2, 3) + ones(m, 4)).shape,
    "where": lambda m: (ones(m, 3) > 0).where(ones(m, 2), 1).shape,
    "masked_fill": lambda m: ones(m, 3).masked_fill(ones(m, 2) > 0, 1).shape,
    "allclose": lambda m: ones(m, 3).allclose(ones(m, 4)),
    "matmul": lambda m: ones(m, 2, 3) @ ones(m, 2, 3),
    "conv2d": lambda m: ones(m, 1, 3, 5, 5).conv2d(ones(m, 2, 4, 3, 3)),
    "conv2d of too little": lambda m: ones(m, 1, 3, 2, 2).conv2d(ones(m, 2, 3, 3, 3)),
    "gather along no axis": lambda m: ones(m, 2, 3).gather(5, ones(m, 1, 1, dtype=m.dtypes.int)),
    "gather": lambda m: ones(m, 2, 3).gather(0, ones(m, 2, 9, dtype=m.dtypes.int)),
    "scatter": lambda m: ones(m, 2, 3).scatter(0, ones(m, 1, dtype=m.dtypes.int), ones(m, 1)),
    "einsum": lambda m: m.Tensor.einsum("ijk->i", ones(m, 2, 3)),
    "rearrange": lambda m: ones(m, 2, 3).rearrange("a b c -> a"),
    "interpolate": lambda m: ones(m, 2).interpolate((4, 4)),
    "interpolate's mode": lambda m: ones(m, 1, 1, 2, 2).interpolate((4, 4), mode="x"),
    "div's mode": lambda m: ones(m, 1).div(2, rounding_mode="x"),
    "gelu's approximation": lambda m: ones(m, 3).gelu("x"),
    "multinomial": lambda m: ones(m, 2, 2, 2).multinomial(1),
    "label_smoothing": lambda m: ones(m, 2, 3).cross_entropy(ones(m, 2, dtype=m.dtypes.int), label_smoothing=3),
    "qr": lambda m: ones(m, 3).qr(),
    "item": lambda m: ones(m, 3).item(),
    "replace": lambda m: ones(m, 3).replace(ones(m, 4)),
    "a variable": lambda m: m.Variable("i", 1, 5).bind(7),
    "len": lambda m: len(ones(m)),
    "truth": lambda m: bool(ones(m, 1)),
    "backward": lambda m: ones(m, 3).backward(),
    "a layer's axes": lambda m: m.nn.LayerNorm(3)(ones(m, 2, 4)),
    "a name of a tensor": lambda m: ones(m, 3).nope,
    "a name of the class": lambda m: m.Tensor.nope,
    "a name of dtypes": lambda m: m.dtypes.float31,
    "a name of the package": lambda m: m.nope,
    "a keyword": lambda m: m.Tensor([1], nope=3),
    "a list that is ragged": lambda m: m.Tensor([[1, 2], [3]]),
    "an object": lambda m: m.Tensor(object()),
    "an optimiser of nothing": lambda m: m.nn.optim.SGD([]),
    "an optimiser of no list": lambda m: m.nn.optim.SGD(3),
    "a setting": lambda m: m.Context(NOPE=1).__enter__(),
    "a name that a state lacks": lambda m: m.nn.state.load_state_dict({"a": ones(m, 3)}, {}, verbose=False),
    "a shape of a state": lambda m: m.nn.state.load_state_dict({"a": ones(m, 3)}, {"a": ones(m, 4)}, verbose=False),
    **{f"{name} of no file": lambda m, name=name: getattr(m.nn.state, name)("/nowhere/file")
       for name in ("safe_load", "torch_load", "tar_extract", "zip_extract")},
    **{f"{name} of a folder": lambda m, name=name: getattr(m.nn.state, name)("/tmp")
       for name in ("safe_load", "tar_extract")},
    "a tensor of no file": lambda m: m.Tensor(pathlib.Path("/nowhere/file")),
    "safe_save to no folder": lambda m: m.nn.state.safe_save({"a": ones(m, 3)}, "/nowhere/file"),
}


@pytest.mark.parametrize("mistake", ALIKE)
def test_what_tinygrad_raises_is_raised(mistake):
    with pytest.raises(Exception) as theirs:
        ALIKE[mistake](tinygrad)
    with pytest.raises(theirs.type):
        ALIKE[mistake](outboard)


@pytest.mark.parametrize("mistake, kind", [
    (lambda: ones(outboard, 2).sum(4), outboard.InvalidIndex),
    (lambda: ones(outboard, 2).chunk(0), outboard.CheckFailed),
    (lambda: outboard.nn.LayerNorm(3)(ones(outboard, 4)), outboard.CheckFailed),
    (lambda: outboard.nn.RMSNorm(3)(ones(outboard, 4)), outboard.InvalidIndex)])
def test_they_are_what_they_were_and_name_the_line(mistake, kind):
    with pytest.raises(kind) as raised:
        mistake()
    error = raised.value
    assert isinstance(error, outboard.InvalidArgument) and isinstance(error, ValueError)
    assert error.code == "INVALID_ARGUMENT" and error.filename == __file__ and "mistakes_test.py:" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == str(error)


@pytest.mark.parametrize("read", [outboard.Tensor, outboard.nn.state.safe_load, outboard.nn.state.gguf_load])
def test_a_folder_is_no_file(read, tmp_path):
    with pytest.raises(outboard.IsADirectory, match="is a folder") as raised:
        read(tmp_path)
    assert isinstance(raised.value, ValueError) and raised.value.code == "INVALID_ARGUMENT"
    assert type(pickle.loads(pickle.dumps(raised.value))) is outboard.IsADirectory


def test_archives():
    state = outboard.nn.state
    for call, kind in [(state.tar_extract, tarfile.ReadError), (state.zip_extract, zipfile.BadZipFile)]:
        with pytest.raises(kind) as raised:
            call(outboard.Tensor(b"a" * 2000))
        assert isinstance(raised.value, ValueError) and isinstance(pickle.loads(pickle.dumps(raised.value)), kind)


@pytest.mark.parametrize("call", [
    lambda x: x.cat(3), lambda x: x.stack("a"), lambda x: x.realize(3), lambda x: x.sum().gradient(3),
    lambda x: x.meshgrid(3), lambda x: outboard.Tensor.einsum("i,i", x, 3), lambda x: x.sum(1.5), lambda x: x.sum("a"),
    lambda x: x.cast(3),
    lambda x: x + "a", lambda x: x.reshape("a"), lambda x: x.conv2d(3)])
def test_a_wrong_type_is_a_type_error(call):
    with pytest.raises(TypeError):
        call(ones(outboard, 3))
