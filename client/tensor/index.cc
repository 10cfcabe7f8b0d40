// Elements by index: gathers are one-hot sums in the graph and loads in a kernel.
#include "absl/strings/str_cat.h"
#include "client/tensor/recorder.h"
#include "client/tensor/tensor.h"
#include "client/tensor/windows.h"

namespace outboard {

using internal::Recorder;

Tensor Tensor::operator[](const Arg& index) const {
  const Recorder rec(index.at());
  if (index.is_tensor()) return take(index.tensor(), 0, index.at());
  if (index.kind() != Arg::Kind::kInt) rec.Invalid("an index must be an integer");
  const UOp* const x = NodeIn(rec);
  if (x->rank() == 0) rec.Invalid("a scalar has no elements to index");
  const int64_t length = x->shape[0].value();
  const int64_t i = index.int_value() < 0 ? index.int_value() + length : index.int_value();
  if (i < 0 || i >= length)
    rec.Invalid(
        absl::StrCat("index ", index.int_value(), " is out of range for an axis of ", length));
  return slice(0, i, i + 1, index.at()).squeeze(0, index.at());
}

Tensor Tensor::take(const Tensor& index, int64_t axis, At at) const {
  const Recorder rec(at);
  const UOp* const x = NodeIn(rec);
  const UOp* const wanted = index.NodeIn(rec);
  if (!IsInt(wanted->dtype))
    rec.Invalid(
        absl::StrCat("an index must be of integers, not ", std::string(Name(wanted->dtype))));
  return FromNode(rec, internal::Gather(rec, x, rec.Axis(axis, x->rank()), wanted));
}

Tensor Tensor::one_hot(int64_t classes, DType dtype, At at) const {
  const Recorder rec(at);
  const UOp* const x = NodeIn(rec);
  if (!IsInt(x->dtype))
    rec.Invalid(absl::StrCat("one_hot: needs integers, not ", std::string(Name(x->dtype))));
  Shape ones(x->shape.begin(), x->shape.end()), full = ones;
  ones.emplace_back(1);
  full.emplace_back(classes);
  const bool wide = ByteWidth(x->dtype) == 8 || x->dtype == DType::kU32;
  const DType type = wide ? DType::kI64 : DType::kI32;
  const UOp* const wanted = rec.Expand(rec.Reshape(rec.Cast(x, type), ones), full);
  const UOp* const hot = rec.Alu(Op::kCmpEq, rec.IotaAlong(type, full, x->rank()), wanted);
  return FromNode(rec, rec.Cast(hot, dtype));
}

}  // namespace outboard
