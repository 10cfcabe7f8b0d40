// What layers and losses are made of.
#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/reduce/losses.h"
#include "client/ops/window/windows.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::Operands;

Tensor Tensor::dropout(double p, At at) const {
  const NodeBuilder rec(at);
  if (!(p >= 0 && p <= 1)) rec.Invalid(absl::StrCat("dropout: p is ", p, ", not in 0..1"));
  if (!training() || p == 0) return FromNode(rec, NodeIn(rec));
  if (p == 1) return FromNode(rec, rec.FullLike(NodeIn(rec), 0));
  const Tensor keep = Arg(rand(shape(at), DType::kF32, at), at) >= Arg(p, at);
  return keep.where(Arg(Arg(*this, at) * Arg(1 / (1 - p), at), at), Arg(0, at));
}

Tensor Tensor::sparse_categorical_crossentropy(const Tensor& labels, int64_t ignore_index,
                                               double label_smoothing, At at) const {
  return outboard::sparse_categorical_crossentropy(*this, labels, ignore_index, label_smoothing,
                                                   Reduction::kMean, at);
}

Tensor Tensor::mse_loss(const Arg& target) const {
  const At at = target.at();
  return Tensor(Arg(*this, at) - target).square(at).mean({}, false, at);
}

Tensor Tensor::binary_crossentropy_logits(const Arg& target) const {
  // -[t log s(x) + (1 - t) log(1 - s(x))] = softplus(x) - t x
  const At at = target.at();
  const Tensor product = target * Arg(*this, at);
  return Tensor(Arg(softplus(at), at) - Arg(product, at)).mean({}, false, at);
}

}  // namespace outboard
