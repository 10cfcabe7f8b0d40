#include "client/ops/reduce/norms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_expr.h"
#include "client/ops/elementwise/promote.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

// [C] beside [B, C, ...].
Tensor AlongChannels(const Tensor& parameter, const Tensor& x, const char* what) {
  const NodeBuilder rec;
  const NodeExpr p = ExprOf(rec, parameter), node = ExprOf(rec, x);
  if (p->rank() != 1 || p->shape[0] != node->shape[1])
    rec.Invalid(
        absl::StrCat(what, ": ", DimsToString(p->shape), " beside ", DimsToString(node->shape)));
  Shape ones(node->rank(), Dim(1));
  ones[1] = node->shape[1];
  return TensorOf(p.Reshape(ones));
}

}  // namespace

// (x - mean) * invstd * weight + bias (Ioffe and Szegedy, 2015).
Tensor Tensor::batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                         const Tensor& invstd, const Axes& axes, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr given = ExprOf(rec, *this);
  DType type = FloatOf(given->dtype);  // weights do not fit integers
  for (const Tensor* tensor : {&weight, &bias, &mean, &invstd})
    if (!tensor->empty()) type = Promote(type, tensor->dtype());
  const NodeExpr x = given.Cast(type);
  for (const int64_t axis : axes)
    if (axis >= x->rank() || axis < -x->rank())
      rec.Invalid(absl::StrCat("batchnorm: ", DimsToString(x->shape), " has no axis ", axis));
  Shape ones(x->rank(), Dim(1)), lengths;
  for (const int64_t axis : rec.Axes(axes, x->rank())) {
    ones[axis] = x->shape[axis];
    lengths.push_back(x->shape[axis]);
  }
  const auto along = [&](const Tensor& tensor) {
    const NodeExpr t = ExprOf(rec, tensor).Cast(type);
    if (t->shape == ShapeView(lengths)) return t.Reshape(ones).Expand(x->shape);
    if (t->shape != ShapeView(ones))
      rec.Invalid(
          absl::StrCat("batchnorm: ", DimsToString(t->shape), " beside ", DimsToString(x->shape)));
    return t.Expand(x->shape);
  };
  NodeExpr y = (x - along(mean)) * along(invstd);
  if (!weight.empty()) y = y * along(weight);
  if (!bias.empty()) y = y + along(bias);
  return TensorOf(y);
}

// Ba, Kiros and Hinton (2016), without their weight and bias.
Tensor Tensor::layernorm(const Axes& axes, double eps, At at) const {
  const CallSite site(at);
  const Tensor y = *this - mean(axes, true);
  return y * (y.square().mean(axes, true) + eps).rsqrt();
}

// Wu and He (2018).
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
  for (int64_t i = 0; i < node->rank(); ++i) sizes.push_back(x.size(i));
  Tensor y = x.reshape({sizes[0], groups, -1}).layernorm(-1, eps).reshape(sizes);
  if (!weight.empty()) y = y * AlongChannels(weight, y, kName);
  return bias.empty() ? y : y + AlongChannels(bias, y, kName);
}

// Zhang and Sennrich (2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, At at) {
  const CallSite site(at);
  const DType type = FloatOf(x.dtype());
  const Tensor wide = x.cast(AccumulateType(type));
  const Tensor y = (wide * (wide.square().mean(-1, true) + eps).rsqrt()).cast(type);
  return weight.empty() ? y : y * weight;
}

BatchStatistics batch_statistics(const Tensor& x, At at) {
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  if (node->rank() < 2)
    rec.Invalid(absl::StrCat("batch_statistics: ", DimsToString(node->shape), " has no axis 1"));
  Dims axes;
  for (int64_t i = 0; i < node->rank(); ++i)
    if (i != 1) axes.push_back(i);
  const Tensor mean = x.mean(axes);
  const Tensor y = x - AlongChannels(mean.detach(), x, "batch_statistics");
  return {mean, y.square().mean(axes)};
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  RunningStatistics& running, double momentum, double eps, At at) {
  const CallSite site(at);
  const auto normalised = [&](const Tensor& mean, const Tensor& variance) {
    return x.batchnorm(weight, bias, mean, (variance + eps).rsqrt());
  };
  const bool tracked = !running.mean.empty();
  if (tracked && !Tensor::training()) return normalised(running.mean, running.variance);
  const auto& [mean, variance] = batch_statistics(x);
  if (!tracked || !Tensor::training()) return normalised(mean, variance);
  const int64_t channels = x.shape(1);
  if (running.mean.shape(0) != channels)
    ThrowInvalid(absl::StrCat("batch_norm: ", channels, " channels, not ", running.mean.shape(0)));
  const auto count = static_cast<double>(x.numel() / std::max<int64_t>(channels, 1));
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  const auto towards = [&](Tensor& kept, const Tensor& batch, double factor) {
    kept.assign(kept * (1 - momentum) + batch.detach() * (momentum * factor));
  };
  towards(running.mean, mean, 1);
  towards(running.variance, variance, unbiased);
  if (!running.count.empty()) running.count.assign(running.count + 1);
  return normalised(mean, variance);
}

}  // namespace outboard
