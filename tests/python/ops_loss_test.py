"""Losses against PyTorch: values and gradients, with every reduction."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ops import Case
from outboard import Tensor

LABELS = np.array([2, 0, 3, 1, 1], np.int64)
PICTURE = np.random.default_rng(0).integers(0, 3, (2, 4, 5))
REDUCTIONS = ["mean", "sum", "none"]
SHARES = np.random.default_rng(1).dirichlet(np.ones(4), 5).astype(np.float32)
WEIGHT = np.array([0.5, 1, 2, 0.25], np.float32)
TARGET = np.random.default_rng(2).uniform(0, 1, (3, 4)).astype(np.float32)

CASES = [case for r in REDUCTIONS for case in [
    Case(f"cross_entropy {r}", [(5, 4), LABELS], lambda x, y, r=r: x.cross_entropy(y, reduction=r),
         lambda x, y, r=r: F.cross_entropy(x, y, reduction=r)),
    Case(f"cross_entropy smoothed {r}", [(5, 4), LABELS],
         lambda x, y, r=r: x.cross_entropy(y, reduction=r, label_smoothing=0.2),
         lambda x, y, r=r: F.cross_entropy(x, y, reduction=r, label_smoothing=0.2)),
    Case(f"cross_entropy of shares {r}", [(5, 4), SHARES], lambda x, y, r=r: x.cross_entropy(y, reduction=r),
         lambda x, y, r=r: F.cross_entropy(x, y, reduction=r)),
    Case(f"cross_entropy of a picture {r}", [(2, 3, 4, 5), PICTURE], lambda x, y, r=r: x.cross_entropy(y, r),
         lambda x, y, r=r: F.cross_entropy(x, y, reduction=r)),
    Case(f"nll_loss {r}", [(5, 4), LABELS], lambda x, y, r=r: x.log_softmax(1).nll_loss(y, reduction=r),
         lambda x, y, r=r: F.nll_loss(x.log_softmax(1), y, reduction=r)),
    Case(f"nll_loss weighted {r}", [(5, 4), LABELS, WEIGHT], lambda x, y, w, r=r: x.log_softmax(1).nll_loss(y, w, reduction=r),
         lambda x, y, w, r=r: F.nll_loss(x.log_softmax(1), y, w.detach(), reduction=r)),
    Case(f"nll_loss ignoring {r}", [(5, 4), LABELS], lambda x, y, r=r: x.nll_loss(y, ignore_index=1, reduction=r),
         lambda x, y, r=r: F.nll_loss(x, y, ignore_index=1, reduction=r)),
    Case(f"nll_loss of a picture {r}", [(2, 3, 4, 5), PICTURE], lambda x, y, r=r: x.nll_loss(y, reduction=r),
         lambda x, y, r=r: F.nll_loss(x, y, reduction=r)),
    Case(f"sparse_categorical_crossentropy {r}", [(5, 4), LABELS],
         lambda x, y, r=r: x.sparse_categorical_crossentropy(y, reduction=r),
         lambda x, y, r=r: F.cross_entropy(x, y, reduction=r)),
    Case(f"sparse_categorical_crossentropy ignoring {r}", [(5, 4), LABELS],
         lambda x, y, r=r: x.sparse_categorical_crossentropy(y, ignore_index=1, reduction=r),
         lambda x, y, r=r: F.cross_entropy(x, y, ignore_index=1, reduction=r)),
    Case(f"binary_crossentropy {r}", [(3, 4), TARGET], lambda x, y, r=r: x.binary_crossentropy(y, reduction=r),
         lambda x, y, r=r: F.binary_cross_entropy(x, y.detach(), reduction=r), low=0.05, high=0.95),
    Case(f"binary_crossentropy_logits {r}", [(3, 4), TARGET], lambda x, y, r=r: x.binary_crossentropy_logits(y, reduction=r),
         lambda x, y, r=r: F.binary_cross_entropy_with_logits(x, y.detach(), reduction=r)),
    Case(f"binary_crossentropy_logits weighted {r}", [(3, 4), TARGET, WEIGHT],
         lambda x, y, w, r=r: x.binary_crossentropy_logits(y, r, w),
         lambda x, y, w, r=r: F.binary_cross_entropy_with_logits(x, y.detach(), reduction=r, pos_weight=w.detach())),
]] + [
    Case("far from the answer", [np.array([-200, 200], np.float32), np.array([1, 0], np.float32)],
         lambda x, y: x.binary_crossentropy_logits(y), lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach())),
    Case("one row", [(4,), np.array(2)], lambda x, y: x.cross_entropy(y)),
]
CASES[-1].theirs = lambda x, y: F.cross_entropy(x, y)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


def test_labels_of_no_class():
    x, labels = Tensor([[1.0, 2.0], [3.0, 1.0]]), Tensor([0, -1])
    one = float(F.cross_entropy(torch.tensor([[1.0, 2.0]]), torch.tensor([0])))
    # As in tinygrad: -1 ignores nothing, and a row of no class counts with a loss of 0.
    assert x.sparse_categorical_crossentropy(labels).item() == pytest.approx(one / 2, rel=1e-5)
    assert x.sparse_categorical_crossentropy(Tensor([0, 7]), ignore_index=7).item() == pytest.approx(one, rel=1e-5)


@pytest.mark.parametrize("call", [lambda x: x.cross_entropy(Tensor([0, 1]), reduction="max"),
                                  lambda x: x.cross_entropy(Tensor([0, 1, 1])),
                                  lambda x: x.cross_entropy(Tensor([0, 1]), label_smoothing=2.0),
                                  lambda x: x.nll_loss(Tensor([0, 1]), Tensor([1.0])),
                                  lambda x: x.sparse_categorical_crossentropy(Tensor([0.5, 1.0]))])
def test_mistakes(call):
    with pytest.raises(ValueError):
        call(Tensor.ones(2, 3))
