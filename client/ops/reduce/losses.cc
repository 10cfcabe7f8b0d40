#include "client/ops/reduce/losses.h"

#include "absl/strings/str_cat.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/float_functions.h"

namespace outboard {

using internal::DimsToString;
using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

// Over `axis`, which goes.
NodeExpr SumOver(const NodeExpr& x, int axis) { return x.Sum({axis}).Squeeze({axis}); }

// x at the labels along `axis`, which goes; 0 where a label names no class.
NodeExpr Picked(const NodeExpr& x, const NodeExpr& labels, int axis, const char* what) {
  Shape without(x->shape.begin(), x->shape.end());
  without.erase(without.begin() + axis);
  if (!IsInt(labels->dtype) || Shape(labels->shape.begin(), labels->shape.end()) != without)
    ThrowInvalid(absl::StrCat(what, ": labels of ", std::string(Name(labels->dtype)), " ",
                              DimsToString(labels->shape), " for ", DimsToString(x->shape)));
  const bool wide = ByteWidth(labels->dtype) == 8 || labels->dtype == DType::kU32;
  const DType type = wide ? DType::kI64 : DType::kI32;
  Shape ones(x->shape.begin(), x->shape.end());
  ones[axis] = Dim(1);
  const NodeExpr wanted = labels.Cast(type).Reshape(ones).Expand(x->shape);
  const NodeExpr is_wanted = Iota(x.rec(), type, x->shape, axis) == wanted;
  return SumOver(Where(is_wanted, x, 0), axis);
}

// Whether each label counts; nullopt where all do, as the type of the labels has no such value.
std::optional<NodeExpr> Counted(const NodeExpr& labels, std::optional<int64_t> ignore_index) {
  if (!ignore_index || *ignore_index < IntMin(labels->dtype) ||
      *ignore_index > IntMax(labels->dtype))
    return std::nullopt;
  return labels != labels.FullInt(*ignore_index);
}

void CheckSmoothing(const char* what, double smoothing) {
  if (!(smoothing >= 0 && smoothing <= 1))
    ThrowInvalid(absl::StrCat(what, ": label_smoothing is ", smoothing, ", not in 0..1"),
                 Mistake::kCheck);
}

// The target has a share of `smoothing` spread over all classes (Szegedy et al., 2016).
NodeExpr Smoothed(const NodeExpr& picked, const NodeExpr& log_p, int axis, double smoothing) {
  if (smoothing == 0) return picked;
  const double share = smoothing / static_cast<double>(log_p.rec().LengthOf(log_p, axis));
  return picked * (1 - smoothing) + SumOver(log_p, axis) * share;
}

// The negative of what becomes of `gains`, where their mean is over `shares` if there are some.
// Negated at the end, so that the gradient's operand of a one-hot sum is seen to be one
// (compiler/schedule/gather/gather.h).
Tensor Lost(const NodeExpr& gains, const std::optional<NodeExpr>& shares, Reduction reduction) {
  const Tensor each = TensorOf(gains);
  if (reduction != Reduction::kMean || !shares) return -reduced(each, reduction);
  return -(each.sum() / TensorOf(*shares).sum());
}

// Both as floats of one type and shape.
struct Compared {
  NodeExpr x, target;
};
Compared FloatsOf(const NodeBuilder& rec, const Tensor& x, const Tensor& target) {
  const auto [a, b] = internal::Promoted(rec, x, target, "binary_crossentropy");
  const DType dtype = FloatOf(a->dtype);
  return {NodeExpr(rec, a).Cast(dtype), NodeExpr(rec, b).Cast(dtype)};
}

}  // namespace

Tensor reduced(const Tensor& losses, Reduction reduction, At at) {
  const CallSite site(at);
  switch (reduction) {
    case Reduction::kMean: return losses.mean();
    case Reduction::kSum: return losses.sum();
    default: return losses;
  }
}

// -sum(target * log_softmax(x)).
Tensor cross_entropy(const Tensor& x, const Tensor& target, Reduction reduction,
                     double label_smoothing, At at) {
  const NodeBuilder rec(at);
  CheckSmoothing("cross_entropy", label_smoothing);
  const int axis = x.rank() == 1 ? 0 : 1;
  if (x.rank() == 0) rec.Invalid("cross_entropy: a scalar has no classes");
  const NodeExpr log_p = ExprOf(rec, x.log_softmax(axis)), y = ExprOf(rec, target);
  const NodeExpr picked = y->shape == log_p->shape ? SumOver(log_p * y.Cast(log_p->dtype), axis)
                                                   : Picked(log_p, y, axis, "cross_entropy");
  return Lost(Smoothed(picked, log_p, axis, label_smoothing), {}, reduction);
}

// -log_softmax(x)[label].
Tensor sparse_categorical_crossentropy(const Tensor& x, const Tensor& labels,
                                       std::optional<int64_t> ignore_index, double label_smoothing,
                                       Reduction reduction, At at) {
  constexpr char kName[] = "sparse_categorical_crossentropy";
  const NodeBuilder rec(at);
  CheckSmoothing(kName, label_smoothing);
  const NodeExpr log_p = ExprOf(rec, x.log_softmax()), y = ExprOf(rec, labels);
  const int axis = log_p->rank() - 1;
  if (axis < 0) rec.Invalid(absl::StrCat(kName, ": a scalar has no classes"));
  const NodeExpr gains = Smoothed(Picked(log_p, y, axis, kName), log_p, axis, label_smoothing);
  const std::optional<NodeExpr> counted = Counted(y, ignore_index);
  if (!counted) return Lost(gains, {}, reduction);
  return Lost(Where(*counted, gains, 0), counted->Cast(gains->dtype), reduction);
}

// -weight[label] * x[label].
Tensor nll_loss(const Tensor& x, const Tensor& labels, const Tensor& weight,
                std::optional<int64_t> ignore_index, Reduction reduction, At at) {
  constexpr char kName[] = "nll_loss";
  const NodeBuilder rec(at);
  const NodeExpr log_p = ExprOf(rec, x).Cast(FloatOf(x.dtype()));
  if (log_p->rank() < 2)
    rec.Invalid(absl::StrCat(kName, ": ", DimsToString(log_p->shape), " has no axis 1"));
  const NodeExpr y = ExprOf(rec, labels);
  const NodeExpr picked = Picked(log_p, y, 1, kName);
  NodeExpr share = picked.Full(1);
  if (!weight.empty()) {
    const NodeExpr w = ExprOf(rec, weight).Cast(log_p->dtype);
    if (w->rank() != 1 || w->shape[0] != log_p->shape[1])
      rec.Invalid(absl::StrCat(kName, ": weights ", DimsToString(w->shape), " for ",
                               DimsToString(log_p->shape)));
    Shape along(log_p->rank(), Dim(1));
    along[1] = w->shape[0];
    share = Picked(w.Reshape(along).Expand(log_p->shape), y, 1, kName);
  }
  if (const std::optional<NodeExpr> counted = Counted(y, ignore_index))
    share = Where(*counted, share, 0);
  return Lost(picked * share, share, reduction);
}

// -(t log(p) + (1 - t) log(1 - p)).
Tensor binary_crossentropy(const Tensor& x, const Tensor& target, Reduction reduction, At at) {
  const NodeBuilder rec(at);
  const auto [p, t] = FloatsOf(rec, x, target);
  return Lost(t * Log(p) + (1 - t) * Log(1 - p), {}, reduction);
}

// The same of p = sigmoid(x): log(p) is -softplus(-x), and log(1 - p) is -softplus(x).
Tensor binary_crossentropy_logits(const Tensor& x, const Tensor& target, Reduction reduction,
                                  const Tensor& pos_weight, At at) {
  const NodeBuilder rec(at);
  const auto [y, t] = FloatsOf(rec, x, target);
  NodeExpr yes = t * Softplus(-y);
  if (!pos_weight.empty()) {
    const NodeExpr weight = ExprOf(rec, pos_weight).Cast(yes->dtype);
    yes = weight.With(rec.Broadcast(weight, yes->shape)) * yes;
  }
  return reduced(TensorOf(yes + (1 - t) * Softplus(y)), reduction);
}

}  // namespace outboard
