#include "client/ops/reduce/norms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/ops/elementwise/promote.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;

namespace {

// [C] beside [B, C, ...].
Tensor AlongChannels(const Tensor& parameter, const Tensor& x, const char* what, const At& at) {
  const NodeBuilder rec(at);
  const UOp* const p = parameter.NodeIn(rec);
  const UOp* const node = x.NodeIn(rec);
  if (p->rank() != 1 || p->shape[0] != node->shape[1])
    rec.Invalid(
        absl::StrCat(what, ": ", DimsToString(p->shape), " beside ", DimsToString(node->shape)));
  Shape ones(node->rank(), Dim(1));
  ones[1] = node->shape[1];
  return Tensor::FromNode(rec, rec.Reshape(p, ones));
}

}  // namespace

Tensor Tensor::batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                         const Tensor& invstd, const Axes& axes, At at) const {
  const NodeBuilder rec(at);
  const UOp* x = NodeIn(rec);
  DType type = FloatOf(x->dtype);  // weights do not fit integers
  for (const Tensor* tensor : {&weight, &bias, &mean, &invstd})
    if (!tensor->empty()) type = Promote(type, tensor->dtype(at)).value_or(type);
  x = rec.Cast(x, type);
  for (const int64_t axis : axes)
    if (axis >= x->rank() || axis < -x->rank())
      rec.Invalid(absl::StrCat("batchnorm: ", DimsToString(x->shape), " has no axis ", axis));
  Shape ones(x->rank(), Dim(1)), lengths;
  for (const int64_t axis : rec.Axes(axes, x->rank())) {
    ones[axis] = x->shape[axis];
    lengths.push_back(x->shape[axis]);
  }
  const auto along = [&](const Tensor& tensor) {
    const UOp* const t = rec.Cast(tensor.NodeIn(rec), type);
    if (t->shape == ShapeView(lengths)) return rec.Expand(rec.Reshape(t, ones), x->shape);
    if (t->shape != ShapeView(ones))
      rec.Invalid(
          absl::StrCat("batchnorm: ", DimsToString(t->shape), " beside ", DimsToString(x->shape)));
    return rec.Expand(t, x->shape);
  };
  const UOp* y = rec.Mul(rec.Sub(x, along(mean)), along(invstd));
  if (!weight.empty()) y = rec.Mul(y, along(weight));
  if (!bias.empty()) y = rec.Add(y, along(bias));
  return FromNode(rec, y);
}

Tensor Tensor::layernorm(const Axes& axes, double eps, At at) const {
  const Tensor away = Arg(*this, at) - Arg(mean(axes, true, at), at);
  const Tensor variance = away.square(at).mean(axes, true, at);
  return Arg(away, at) * Arg(Tensor(Arg(variance, at) + Arg(eps, at)).rsqrt(at), at);
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps, At at) {
  constexpr char kName[] = "group_norm";
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  if (node->rank() < 2)
    rec.Invalid(absl::StrCat(kName, ": ", DimsToString(node->shape), " has no axis 1"));
  const int64_t channels = rec.LengthOf(node, 1);
  if (groups < 1 || channels % groups != 0)
    rec.Invalid(absl::StrCat(kName, ": ", channels, " channels in ", groups, " groups"));
  SymShape sizes;
  for (int64_t i = 0; i < node->rank(); ++i) sizes.push_back(x.size(i, at));
  Tensor y = x.reshape({sizes[0], groups, -1}, at).layernorm(-1, eps, at).reshape(sizes, at);
  if (!weight.empty()) y = Arg(y, at) * Arg(AlongChannels(weight, y, kName, at), at);
  return bias.empty() ? y : Arg(y, at) + Arg(AlongChannels(bias, y, kName, at), at);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, At at) {
  const DType type = x.dtype(at);
  const Tensor wide = x.cast(AccumulateType(FloatOf(type)), at);
  const Tensor square = wide.square(at).mean(-1, true, at);
  const Tensor scale = Tensor(Arg(square, at) + Arg(eps, at)).rsqrt(at);
  const Tensor y = Tensor(Arg(wide, at) * Arg(scale, at)).cast(FloatOf(type), at);
  return weight.empty() ? y : Arg(y, at) * Arg(weight, at);
}

BatchStatistics batch_statistics(const Tensor& x, At at) {
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  if (node->rank() < 2)
    rec.Invalid(absl::StrCat("batch_statistics: ", DimsToString(node->shape), " has no axis 1"));
  Dims axes;
  for (int64_t i = 0; i < node->rank(); ++i)
    if (i != 1) axes.push_back(i);
  const Tensor mean = x.mean(axes, false, at);
  const Tensor held = AlongChannels(mean.detach(at), x, "batch_statistics", at);
  const Tensor away = Arg(x, at) - Arg(held, at);
  return {mean, away.square(at).mean(axes, false, at)};
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  RunningStatistics& running, double momentum, double eps, At at) {
  const auto normalised = [&](const Tensor& mean, const Tensor& variance) {
    const Tensor invstd = Tensor(Arg(variance, at) + Arg(eps, at)).rsqrt(at);
    return x.batchnorm(weight, bias, mean, invstd, 1, at);
  };
  const bool tracked = !running.mean.empty();
  if (tracked && !Tensor::training()) return normalised(running.mean, running.variance);
  const auto& [mean, variance] = batch_statistics(x, at);
  if (!tracked || !Tensor::training()) return normalised(mean, variance);
  const int64_t channels = x.shape(1, at);
  if (running.mean.shape(0, at) != channels)
    ThrowInvalid(
        at, absl::StrCat("batch_norm: ", channels, " channels, not ", running.mean.shape(0, at)));
  const auto count = static_cast<double>(x.numel(at) / std::max<int64_t>(channels, 1));
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  const auto towards = [&](Tensor& kept, const Tensor& batch, double factor) {
    const Tensor before = Arg(kept, at) * Arg(1 - momentum, at);
    const Tensor added = Arg(batch.detach(at), at) * Arg(momentum * factor, at);
    kept.assign(Arg(Arg(before, at) + Arg(added, at), at));
  };
  towards(running.mean, mean, 1);
  towards(running.variance, variance, unbiased);
  if (!running.count.empty()) running.count.assign(Arg(Arg(running.count, at) + Arg(1, at), at));
  return normalised(mean, variance);
}

}  // namespace outboard
