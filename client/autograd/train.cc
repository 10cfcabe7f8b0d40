// What layers and losses are made of.
#include "absl/strings/str_cat.h"
#include "client/lazy/node_expr.h"
#include "client/ops/reduce/losses.h"

namespace outboard {

using internal::NodeBuilder;

// Srivastava et al. (2014), scaled in training and not afterwards.
Tensor Tensor::dropout(double p, At at) const {
  const NodeBuilder rec(at);
  if (!(p >= 0 && p <= 1)) rec.Invalid(absl::StrCat("dropout: p is ", p, ", not in 0..1"));
  if (!training() || p == 0) return TensorOf(ExprOf(rec, *this));
  if (p == 1) return TensorOf(ExprOf(rec, *this).Full(0));
  return (rand(shape()) >= p).where(*this * (1 / (1 - p)), 0);
}

Tensor Tensor::sparse_categorical_crossentropy(const Tensor& labels, int64_t ignore_index,
                                               double label_smoothing, At at) const {
  return outboard::sparse_categorical_crossentropy(*this, labels, ignore_index, label_smoothing,
                                                   Reduction::kMean, at);
}

Tensor Tensor::mse_loss(const Arg& target) const {
  const CallSite site(target.at());
  return (*this - target).square().mean();
}

// -(t log(s(x)) + (1 - t) log(1 - s(x))) = softplus(x) - t x, s the sigmoid.
Tensor Tensor::binary_crossentropy_logits(const Arg& target) const {
  const CallSite site(target.at());
  return (softplus() - target * *this).mean();
}

}  // namespace outboard
