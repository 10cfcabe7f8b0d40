// Reductions, and what is made of them.

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/promote.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::Mirror;
using internal::NodeBuilder;

namespace {

using AxisList = std::vector<int64_t>;

// Adds up in a type wide enough, and gives floats their own type back.
const UOp* SumOf(const NodeBuilder& rec, const UOp* x, const AxisList& axes) {
  const DType sum = SumType(x->dtype);
  return rec.Cast(rec.Reduce(Op::kAdd, rec.Cast(x, AccumulateType(sum)), axes), sum);
}

int64_t CountOver(const NodeBuilder& rec, const UOp* x, const AxisList& axes) {
  int64_t count = 1;
  for (const int64_t axis : axes) count *= rec.LengthOf(x, axis);
  return count;
}

// The same as a node of the shape and type of `like`, where some lengths are of variables.
const UOp* CountLike(const NodeBuilder& rec, const UOp* like, const UOp* x, const AxisList& axes) {
  const UOp* count = rec.ConstInt(DType::kI64, 1);
  for (const int64_t axis : axes) {
    const Dim& dim = x->shape[axis];
    count =
        rec.Mul(count, dim.is_const() ? rec.ConstInt(DType::kI64, dim.value()) : dim.expression());
  }
  return rec.Full(rec.Cast(count, like->dtype), like->shape);
}

bool IsStaticOver(const UOp* x, const AxisList& axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [&](int64_t axis) { return x->shape[axis].is_const(); });
}

// The mean over `axes`, which stay. Over nothing it is NaN, as 0 / 0.
const UOp* MeanOf(const NodeBuilder& rec, const UOp* x, const AxisList& axes) {
  const UOp* const wide = rec.Cast(x, AccumulateType(FloatOf(x->dtype)));
  const UOp* const sum = rec.Reduce(Op::kAdd, wide, axes);
  if (!IsStaticOver(x, axes))
    return rec.Cast(rec.Alu(Op::kFDiv, sum, CountLike(rec, sum, x, axes)), FloatOf(x->dtype));
  const auto count = static_cast<double>(CountOver(rec, x, axes));
  const UOp* const mean = count == 0 ? rec.FullLike(sum, std::numeric_limits<double>::quiet_NaN())
                                     : rec.Scale(sum, 1 / count);
  return rec.Cast(mean, FloatOf(x->dtype));
}

const UOp* MaxOf(const NodeBuilder& rec, const UOp* x, const AxisList& axes) {
  if (!IsBool(x->dtype)) return rec.Reduce(Op::kMax, x, axes);
  return rec.Cast(rec.Reduce(Op::kMax, rec.Cast(x, DType::kU8), axes), DType::kBool);
}

// The first place along `axis` where x is as large as `top`.
const UOp* PlaceOf(const NodeBuilder& rec, const UOp* x, int axis) {
  const UOp* const top = rec.Expand(MaxOf(rec, x, {axis}), x->shape);
  const int64_t length = rec.LengthOf(x, axis);
  if (length == 0) rec.Invalid("argmax: the axis has no elements");
  // NaN is the maximum where there is one, and differs from itself.
  const UOp* is_top = rec.Alu(Op::kCmpEq, x, top);
  if (IsFloat(x->dtype)) is_top = rec.Alu(Op::kOr, is_top, rec.Alu(Op::kCmpNe, x, x));
  const UOp* const iota = rec.IotaAlong(DType::kI32, x->shape, axis);
  const UOp* const from_end =
      rec.Sub(rec.FullLike(iota, static_cast<double>(length)), iota);  // length ... 1
  const UOp* const best =
      rec.Reduce(Op::kMax, rec.Where(is_top, from_end, rec.FullLike(from_end, 0)), {axis});
  return rec.Sub(rec.FullLike(best, static_cast<double>(length)), best);
}

// Reduces over `axes` with `function`, which keeps the axes.
template <typename F>
Tensor Over(const Tensor& tensor, const Dims& axes, bool keepdim, const At& at, const F& function) {
  const NodeBuilder rec(at);
  const UOp* const x = tensor.NodeIn(rec);
  const AxisList over = rec.Axes(axes, x->rank());
  const UOp* const y = function(rec, x, over);
  return Tensor::FromNode(rec, keepdim ? y : rec.Squeeze(y, over));
}

// What is added to an exponent so that it does not overflow changes nothing, so it has no gradient.
const UOp* HeldTop(const NodeBuilder& rec, const UOp* x, const AxisList& axes) {
  const UOp* const top = MaxOf(rec, x, axes);
  return rec.Make(Op::kDetach, top->dtype, {top});
}

const UOp* Centred(const NodeBuilder& rec, const UOp* x, const AxisList& axes) {
  return rec.Sub(x, rec.Expand(HeldTop(rec, x, axes), x->shape));
}

}  // namespace

Tensor Tensor::sum(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, SumOf);
}

Tensor Tensor::prod(const Axes& axes, bool keepdim, At at) const {
  return Over(
      *this, axes, keepdim, at, [](const NodeBuilder& rec, const UOp* x, const AxisList& over) {
        const DType wide = SumType(x->dtype);
        return rec.Cast(rec.Reduce(Op::kMul, rec.Cast(x, AccumulateType(wide)), over), wide);
      });
}

Tensor Tensor::mean(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, MeanOf);
}

Tensor Tensor::max(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, MaxOf);
}

Tensor Tensor::min(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at,
              [](const NodeBuilder& rec, const UOp* x, const AxisList& over) {
                return Mirror(rec, MaxOf(rec, Mirror(rec, x), over));
              });
}

Tensor Tensor::any(const Axes& axes, bool keepdim, At at) const {
  return cast(DType::kBool, at).max(axes, keepdim, at);
}

Tensor Tensor::all(const Axes& axes, bool keepdim, At at) const {
  return cast(DType::kBool, at).min(axes, keepdim, at);
}

Tensor Tensor::var(const Axes& axes, bool keepdim, int64_t correction, At at) const {
  return Over(
      *this, axes, keepdim, at, [&](const NodeBuilder& rec, const UOp* x, const AxisList& over) {
        const UOp* const wide = rec.Cast(x, AccumulateType(FloatOf(x->dtype)));
        const UOp* const away = rec.Sub(wide, rec.Expand(MeanOf(rec, wide, over), wide->shape));
        const UOp* const sum = rec.Reduce(Op::kAdd, rec.Mul(away, away), over);
        const auto count =
            static_cast<double>(std::max<int64_t>(CountOver(rec, x, over) - correction, 0));
        return rec.Cast(rec.Alu(Op::kFDiv, sum, rec.FullLike(sum, count)), FloatOf(x->dtype));
      });
}

Tensor Tensor::std(const Axes& axes, bool keepdim, int64_t correction, At at) const {
  return var(axes, keepdim, correction, at).sqrt(at);
}

Tensor Tensor::argmax(int64_t axis, bool keepdim, At at) const {
  const NodeBuilder rec(at);
  const UOp* const x = NodeIn(rec);
  const int place = rec.Axis(axis, x->rank());
  const UOp* const y = PlaceOf(rec, x, place);
  return FromNode(rec, keepdim ? y : rec.Squeeze(y, {place}));
}

Tensor Tensor::argmax(At at) const { return flatten(0, -1, at).argmax(0, false, at); }

Tensor Tensor::argmin(int64_t axis, bool keepdim, At at) const {
  const NodeBuilder rec(at);
  return FromNode(rec, Mirror(rec, NodeIn(rec))).argmax(axis, keepdim, at);
}

Tensor Tensor::logsumexp(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at,
              [](const NodeBuilder& rec, const UOp* given, const AxisList& over) {
                const UOp* const x = rec.Cast(given, FloatOf(given->dtype));
                const UOp* const top = HeldTop(rec, x, over);
                const UOp* const sum =
                    SumOf(rec, rec.Alu(Op::kExp, rec.Sub(x, rec.Expand(top, x->shape))), over);
                return rec.Add(rec.Alu(Op::kLog, sum), top);
              });
}

Tensor Tensor::softmax(const Axes& axes, At at) const {
  return Over(
      *this, axes, true, at, [](const NodeBuilder& rec, const UOp* x, const AxisList& over) {
        const UOp* const e = rec.Alu(Op::kExp, Centred(rec, rec.Cast(x, FloatOf(x->dtype)), over));
        return rec.Alu(Op::kFDiv, e, rec.Expand(SumOf(rec, e, over), x->shape));
      });
}

Tensor Tensor::log_softmax(const Axes& axes, At at) const {
  return Over(
      *this, axes, true, at, [](const NodeBuilder& rec, const UOp* x, const AxisList& over) {
        const UOp* const m = Centred(rec, rec.Cast(x, FloatOf(x->dtype)), over);
        const UOp* const log_sum = rec.Alu(Op::kLog, SumOf(rec, rec.Alu(Op::kExp, m), over));
        return rec.Sub(m, rec.Expand(log_sum, x->shape));
      });
}

}  // namespace outboard
