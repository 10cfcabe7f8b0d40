"""Hints of how values lie on several devices: they change nothing but where."""
import pytest

import outboard
from outboard import Tensor, nn


def test_a_hint_changes_no_value_and_no_gradient():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x.shard(("CLOUD:0", "CLOUD:1"), axis=0) * 2
    y.sum().backward()
    assert y.tolist() == [[2, 4], [6, 8]]
    assert x.grad.tolist() == [[2, 2], [2, 2]]
    assert x.shard(axis=-1, mesh_axis=1).tolist() == x.shard_like(y).tolist() == x.tolist()


def test_shard_in_place_keeps_the_tensor():
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert w.shard_(axis=0) is w
    (w * w).sum().backward()
    assert w.grad.tolist() == [2, 4, 6]
    assert Tensor.ones(3).shard_like(w).tolist() == [1, 1, 1]


def test_an_axis_that_is_not_there_is_named():
    with pytest.raises((outboard.InvalidIndex, outboard.InvalidArgument), match="2"):
        Tensor.ones(2, 3).shard(axis=2)
    with pytest.raises(outboard.Error, match=r"4 .*0\.\.3"):
        Tensor.ones(2, 3).shard(axis=0, mesh_axis=4)


@pytest.mark.parametrize("how", ["fsdp", "data", lambda name, tensor: 0 if name.endswith("weight") else None])
def test_a_model_computes_what_it_did(how):
    model = nn.Linear(4, 3)
    x = Tensor.rand(2, 4).realize()
    before = model(x).tolist()
    assert outboard.shard_model(model, how) is model
    assert model(x).tolist() == before


def test_another_how_is_refused():
    with pytest.raises(ValueError, match="stages"):
        outboard.shard_model(nn.Linear(2, 2), "stages")
