// What layers and losses are made of.
#include "absl/strings/str_cat.h"
#include "client/tensor/operands.h"
#include "client/tensor/promote.h"
#include "client/tensor/recorder.h"
#include "client/tensor/tensor.h"
#include "client/tensor/windows.h"

namespace outboard {

using internal::DimsToString;
using internal::Operands;
using internal::Recorder;

Tensor Tensor::dropout(double p, At at) const {
  const Recorder rec(at);
  if (!(p >= 0 && p <= 1)) rec.Invalid(absl::StrCat("dropout: p is ", p, ", not in 0..1"));
  if (!training() || p == 0) return FromNode(rec, NodeIn(rec));
  if (p == 1) return FromNode(rec, rec.FullLike(NodeIn(rec), 0));
  const Tensor keep = Arg(rand(shape(at), DType::kF32, at), at) >= Arg(p, at);
  return keep.where(Arg(Arg(*this, at) * Arg(1 / (1 - p), at), at), Arg(0, at));
}

Tensor Tensor::sparse_categorical_crossentropy(const Tensor& labels, int64_t ignore_index,
                                               double label_smoothing, At at) const {
  const Recorder rec(at);
  const UOp* const y = labels.NodeIn(rec);
  const UOp* const log_p = log_softmax(-1, at).NodeIn(rec);
  const int classes = log_p->rank() - 1;
  if (classes < 0 || !IsInt(y->dtype) || y->shape != log_p->shape.subspan(0, classes))
    rec.Invalid(absl::StrCat("sparse_categorical_crossentropy: labels of ",
                             std::string(Name(y->dtype)), " ", DimsToString(y->shape), " for ",
                             DimsToString(log_p->shape)));
  const bool wide = ByteWidth(y->dtype) == 8 || y->dtype == DType::kU32;
  const DType type = wide ? DType::kI64 : DType::kI32;
  Shape ones(y->shape.begin(), y->shape.end());
  ones.emplace_back(1);
  const UOp* const wanted = rec.Expand(rec.Reshape(rec.Cast(y, type), ones), log_p->shape);
  const UOp* const hot = rec.Alu(Op::kCmpEq, rec.IotaAlong(type, log_p->shape, classes), wanted);
  const UOp* picked =
      rec.Reduce(Op::kAdd, rec.Where(hot, log_p, rec.FullLike(log_p, 0)), {classes});
  if (label_smoothing != 0) {
    const double share = label_smoothing / static_cast<double>(rec.LengthOf(log_p, classes));
    const UOp* const even = rec.Reduce(Op::kAdd, log_p, {classes});
    picked = rec.Add(rec.Scale(picked, 1 - label_smoothing), rec.Scale(even, share));
  }
  picked = rec.Reshape(picked, y->shape);
  if (!IsSigned(y->dtype)) return -Arg(FromNode(rec, picked).mean({}, false, at), at);
  if (ignore_index < IntMin(y->dtype) || ignore_index > IntMax(y->dtype))
    return -Arg(FromNode(rec, picked).mean({}, false, at), at);
  const UOp* const counted =
      rec.Alu(Op::kCmpNe, y, rec.Full(rec.ConstInt(y->dtype, ignore_index), y->shape));
  const Tensor sum =
      FromNode(rec, rec.Where(counted, picked, rec.FullLike(picked, 0))).sum({}, false, at);
  const Tensor count = FromNode(rec, rec.Cast(counted, picked->dtype)).sum({}, false, at);
  return -Arg(Arg(sum, at) / Arg(count, at), at);
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
