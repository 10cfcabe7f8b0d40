"""Movement against PyTorch, forward and gradient."""
import pytest
import torch

from outboard import Tensor
from ops import Case

CASES = [
    Case("reshape", [(2, 3, 4)], lambda x: x.reshape(4, 6)),
    Case("reshape of a tuple, -1", [(2, 3, 4)], lambda x: x.reshape((3, -1))),
    Case("reshape keeps None", [(2, 3, 4)], lambda x: x.reshape(None, 12), lambda x: x.reshape(2, 12)),
    Case("view", [(2, 3, 4)], lambda x: x.view(24)),
    Case("flatten", [(2, 3, 4)], lambda x: x.flatten()),
    Case("flatten from 1", [(2, 3, 4)], lambda x: x.flatten(1)),
    Case("flatten to -2", [(2, 3, 4)], lambda x: x.flatten(0, -2)),
    Case("unflatten", [(2, 12)], lambda x: x.unflatten(1, (3, 4))),
    Case("unflatten -1", [(2, 12)], lambda x: x.unflatten(-1, (3, -1))),
    Case("unsqueeze", [(2, 3)], lambda x: x.unsqueeze(1)),
    Case("unsqueeze -1", [(2, 3)], lambda x: x.unsqueeze(-1)),
    Case("squeeze", [(2, 1, 3, 1)], lambda x: x.squeeze()),
    Case("squeeze 1", [(2, 1, 3, 1)], lambda x: x.squeeze(1)),
    Case("squeeze of what is longer", [(2, 1, 3)], lambda x: x.squeeze(0)),
    Case("expand", [(1, 3, 1)], lambda x: x.expand(4, 3, 2)),
    Case("expand keeps -1", [(1, 3)], lambda x: x.expand(4, -1)),
    Case("expand with more axes", [(3,)], lambda x: x.expand(2, 4, 3)),
    Case("permute", [(2, 3, 4)], lambda x: x.permute(2, 0, 1)),
    Case("permute of a tuple, negative", [(2, 3, 4)], lambda x: x.permute((-1, 0, 1))),
    Case("transpose", [(2, 3, 4)], lambda x: x.transpose(0, 2)),
    Case("transpose's defaults", [(2, 3)], lambda x: x.transpose(), lambda x: x.transpose(1, 0)),
    Case("T", [(2, 3)], lambda x: x.T),
    Case("flip", [(2, 3, 4)], lambda x: x.flip(1), lambda x: x.flip([1])),
    Case("flip of two", [(2, 3, 4)], lambda x: x.flip((0, -1))),
    Case("shrink", [(4, 5)], lambda x: x.shrink(((1, 3), (0, 4))), lambda x: x[1:3, 0:4]),
    Case("shrink keeps None", [(4, 5)], lambda x: x.shrink((None, (1, 4))), lambda x: x[:, 1:4]),
    Case("shrink_to", [(4, 5)], lambda x: x.shrink_to(2, None), lambda x: x[:2]),
    Case("pad_to", [(2, 3)], lambda x: x.pad_to(4, 5), lambda x: torch.nn.functional.pad(x, (0, 2, 0, 2))),
    Case("pad_to keeps None", [(2, 3)], lambda x: x.pad_to((None, 5)), lambda x: torch.nn.functional.pad(x, (0, 2))),
    Case("repeat", [(2, 3)], lambda x: x.repeat(2, 3)),
    Case("repeat with more axes", [(2, 3)], lambda x: x.repeat((4, 1, 2))),
    Case("split", [(7, 2)], lambda x: x.split(3)),
    Case("split of sizes", [(7, 2)], lambda x: x.split([1, 4, 2])),
    Case("split along 1", [(2, 6)], lambda x: x.split(4, dim=1)),
    Case("chunk", [(7, 2)], lambda x: x.chunk(3)),
    Case("chunk along 1", [(2, 7)], lambda x: x.chunk(4, dim=1)),
    Case("cat", [(2, 3), (4, 3)], lambda x, y: x.cat(y), lambda x, y: torch.cat([x, y])),
    Case("cat of a class, along -1", [(2, 3), (2, 1), (2, 2)], lambda x, y, z: Tensor.cat(x, y, z, dim=-1),
         lambda x, y, z: torch.cat([x, y, z], dim=-1)),
    Case("stack", [(2, 3), (2, 3)], lambda x, y: x.stack(y), lambda x, y: torch.stack([x, y])),
    Case("stack along 1", [(2, 3), (2, 3)], lambda x, y: Tensor.stack(x, y, dim=1),
         lambda x, y: torch.stack([x, y], dim=1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize("wrong", [
    lambda x: x.reshape(5, 5), lambda x: x.reshape(-1, -1), lambda x: x.permute(0), lambda x: x.permute(0, 0),
    lambda x: x.expand(3, 3), lambda x: x.shrink(((0, 3), (0, 9))), lambda x: x.cat(Tensor.ones(3, 4)),
    lambda x: x.unflatten(1, (2, 2)), lambda x: x.split([1, 2]), lambda x: x.pad_to(1, 1), lambda x: x.shrink_to(4, 4),
])
def test_what_does_not_fit_is_a_value_error(wrong):
    with pytest.raises(ValueError, match="ops_movement_test.py:"):
        wrong(Tensor.ones(2, 3))
