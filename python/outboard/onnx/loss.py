"""Losses of classifiers: x [batch, classes, ...], labels [batch, ...]."""

from __future__ import annotations

from outboard import Tensor
from outboard.onnx.registry import op


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    x: Tensor, labels: Tensor, weight: Tensor | None = None, ignore_index: int | None = None, reduction: str = "mean"
) -> Tensor:
    counted = None if ignore_index is None else labels != ignore_index
    safe = labels if counted is None else counted.where(labels, 0)
    loss = -x.gather(1, safe.unsqueeze(1)).squeeze(1)
    if weight is None and counted is None:
        return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()
    share = Tensor.ones(labels.shape, dtype=x.dtype) if weight is None else weight[safe]
    share = share if counted is None else counted.where(share, 0)
    loss = loss * share
    return {"mean": lambda: loss.sum() / share.sum(), "sum": loss.sum, "none": lambda: loss}[reduction]()


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    x: Tensor, labels: Tensor, weight: Tensor | None = None, ignore_index: int | None = None, reduction: str = "mean"
):
    log_probabilities = x.log_softmax(1)
    return negative_log_likelihood_loss(log_probabilities, labels, weight, ignore_index, reduction), log_probabilities
