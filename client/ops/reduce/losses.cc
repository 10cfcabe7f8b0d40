#include "client/ops/reduce/losses.h"

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/float_functions.h"
#include "client/ops/elementwise/promote.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::Operands;

namespace {

// x at the labels along `axis`, which goes; 0 where a label names no class.
const UOp* Picked(const NodeBuilder& rec, const UOp* x, const UOp* labels, int axis,
                  const char* what) {
  Shape without(x->shape.begin(), x->shape.end());
  without.erase(without.begin() + axis);
  if (!IsInt(labels->dtype) || Shape(labels->shape.begin(), labels->shape.end()) != without)
    rec.Invalid(absl::StrCat(what, ": labels of ", std::string(Name(labels->dtype)), " ",
                             DimsToString(labels->shape), " for ", DimsToString(x->shape)));
  const bool wide = ByteWidth(labels->dtype) == 8 || labels->dtype == DType::kU32;
  const DType type = wide ? DType::kI64 : DType::kI32;
  Shape ones(x->shape.begin(), x->shape.end());
  ones[axis] = Dim(1);
  const UOp* const wanted = rec.Expand(rec.Reshape(rec.Cast(labels, type), ones), x->shape);
  const UOp* const hot = rec.Alu(Op::kCmpEq, rec.IotaAlong(type, x->shape, axis), wanted);
  return rec.Squeeze(rec.Reduce(Op::kAdd, rec.Where(hot, x, rec.FullLike(x, 0)), {axis}), {axis});
}

// Whether each label counts; nullptr where all do, as the type of the labels has no such value.
const UOp* Counted(const NodeBuilder& rec, const UOp* labels, std::optional<int64_t> ignore_index) {
  if (!ignore_index || *ignore_index < IntMin(labels->dtype) ||
      *ignore_index > IntMax(labels->dtype))
    return nullptr;
  const UOp* const ignored = rec.ConstInt(labels->dtype, *ignore_index);
  return rec.Alu(Op::kCmpNe, labels, rec.Full(ignored, labels->shape));
}

void CheckSmoothing(const NodeBuilder& rec, const char* what, double smoothing) {
  if (!(smoothing >= 0 && smoothing <= 1))
    rec.Invalid(absl::StrCat(what, ": label_smoothing is ", smoothing, ", not in 0..1"));
}

// The negative of what becomes of `gains`, where their mean is over `shares` if there are some.
// Negated at the end, so that the gradient's operand of a one-hot sum is seen to be one
// (compiler/schedule/gather/gather.h).
Tensor Lost(const NodeBuilder& rec, const UOp* gains, const UOp* shares, Reduction reduction) {
  const At& at = rec.at();
  const Tensor each = Tensor::FromNode(rec, gains);
  if (reduction != Reduction::kMean || shares == nullptr)
    return -Arg(reduced(each, reduction, at), at);
  const Tensor count = Tensor::FromNode(rec, shares).sum({}, false, at);
  return -Arg(Tensor(Arg(each.sum({}, false, at), at) / Arg(count, at)), at);
}

Operands Floats(const NodeBuilder& rec, const Tensor& x, const Tensor& target) {
  const Operands both =
      internal::Promoted(rec, {x, rec.at()}, {target, rec.at()}, "binary_crossentropy");
  const DType dtype = FloatOf(both.a->dtype);
  return {rec.Cast(both.a, dtype), rec.Cast(both.b, dtype)};
}

}  // namespace

Tensor reduced(const Tensor& losses, Reduction reduction, At at) {
  switch (reduction) {
    case Reduction::kMean: return losses.mean({}, false, at);
    case Reduction::kSum: return losses.sum({}, false, at);
    default: return losses;
  }
}

Tensor cross_entropy(const Tensor& x, const Tensor& target, Reduction reduction,
                     double label_smoothing, At at) {
  const NodeBuilder rec(at);
  CheckSmoothing(rec, "cross_entropy", label_smoothing);
  const int axis = x.rank(at) == 1 ? 0 : 1;
  if (x.rank(at) == 0) rec.Invalid("cross_entropy: a scalar has no classes");
  const UOp* const log_p = x.log_softmax(axis, at).NodeIn(rec);
  const UOp* const y = target.NodeIn(rec);
  const UOp* picked;
  if (y->shape == log_p->shape) {
    const UOp* const products = rec.Mul(log_p, rec.Cast(y, log_p->dtype));
    picked = rec.Squeeze(rec.Reduce(Op::kAdd, products, {axis}), {axis});
  } else {
    picked = Picked(rec, log_p, y, axis, "cross_entropy");
  }
  if (label_smoothing != 0) {
    const double share = label_smoothing / static_cast<double>(rec.LengthOf(log_p, axis));
    const UOp* const even = rec.Squeeze(rec.Reduce(Op::kAdd, log_p, {axis}), {axis});
    picked = rec.Add(rec.Scale(picked, 1 - label_smoothing), rec.Scale(even, share));
  }
  return Lost(rec, picked, nullptr, reduction);
}

Tensor sparse_categorical_crossentropy(const Tensor& x, const Tensor& labels,
                                       std::optional<int64_t> ignore_index, double label_smoothing,
                                       Reduction reduction, At at) {
  const NodeBuilder rec(at);
  CheckSmoothing(rec, "sparse_categorical_crossentropy", label_smoothing);
  const UOp* const log_p = x.log_softmax(-1, at).NodeIn(rec);
  const UOp* const y = labels.NodeIn(rec);
  const int axis = log_p->rank() - 1;
  if (axis < 0) rec.Invalid("sparse_categorical_crossentropy: a scalar has no classes");
  const UOp* picked = Picked(rec, log_p, y, axis, "sparse_categorical_crossentropy");
  if (label_smoothing != 0) {
    const double share = label_smoothing / static_cast<double>(rec.LengthOf(log_p, axis));
    const UOp* const even = rec.Squeeze(rec.Reduce(Op::kAdd, log_p, {axis}), {axis});
    picked = rec.Add(rec.Scale(picked, 1 - label_smoothing), rec.Scale(even, share));
  }
  const UOp* const counted = Counted(rec, y, ignore_index);
  if (counted == nullptr) return Lost(rec, picked, nullptr, reduction);
  return Lost(rec, rec.Where(counted, picked, rec.FullLike(picked, 0)),
              rec.Cast(counted, picked->dtype), reduction);
}

Tensor nll_loss(const Tensor& x, const Tensor& labels, const Tensor& weight,
                std::optional<int64_t> ignore_index, Reduction reduction, At at) {
  const NodeBuilder rec(at);
  const UOp* const log_p = rec.Cast(x.NodeIn(rec), FloatOf(x.dtype(at)));
  if (log_p->rank() < 2)
    rec.Invalid(absl::StrCat("nll_loss: ", DimsToString(log_p->shape), " has no axis 1"));
  const UOp* const y = labels.NodeIn(rec);
  const UOp* const picked = Picked(rec, log_p, y, 1, "nll_loss");
  const UOp* share = rec.FullLike(picked, 1);
  if (!weight.empty()) {
    const UOp* const w = rec.Cast(weight.NodeIn(rec), log_p->dtype);
    if (w->rank() != 1 || w->shape[0] != log_p->shape[1])
      rec.Invalid(absl::StrCat("nll_loss: weights ", DimsToString(w->shape), " for ",
                               DimsToString(log_p->shape)));
    Shape along(log_p->rank(), Dim(1));
    along[1] = w->shape[0];
    const UOp* const spread = rec.Expand(rec.Reshape(w, along), log_p->shape);
    share = Picked(rec, spread, y, 1, "nll_loss");
  }
  if (const UOp* const counted = Counted(rec, y, ignore_index))
    share = rec.Where(counted, share, rec.FullLike(share, 0));
  return Lost(rec, rec.Mul(picked, share), share, reduction);
}

Tensor binary_crossentropy(const Tensor& x, const Tensor& target, Reduction reduction, At at) {
  const NodeBuilder rec(at);
  const auto [p, t] = Floats(rec, x, target);
  const UOp* const one = rec.FullLike(p, 1);
  const UOp* const yes = rec.Mul(t, rec.Alu(Op::kLog, p));
  const UOp* const no = rec.Mul(rec.Sub(one, t), rec.Alu(Op::kLog, rec.Sub(one, p)));
  return Lost(rec, rec.Add(yes, no), nullptr, reduction);
}

// log(sigmoid(x)) is -softplus(-x), and log(1 - sigmoid(x)) is -softplus(x).
Tensor binary_crossentropy_logits(const Tensor& x, const Tensor& target, Reduction reduction,
                                  const Tensor& pos_weight, At at) {
  const NodeBuilder rec(at);
  const auto [y, t] = Floats(rec, x, target);
  const UOp* yes = rec.Mul(t, internal::Softplus(rec, rec.Alu(Op::kNeg, y)));
  if (!pos_weight.empty()) {
    const UOp* const weight = rec.Cast(pos_weight.NodeIn(rec), yes->dtype);
    yes = rec.Mul(rec.Broadcast(weight, yes->shape), yes);
  }
  const UOp* const no = rec.Mul(rec.Sub(rec.FullLike(t, 1), t), internal::Softplus(rec, y));
  return reduced(Tensor::FromNode(rec, rec.Add(yes, no)), reduction, at);
}

}  // namespace outboard
