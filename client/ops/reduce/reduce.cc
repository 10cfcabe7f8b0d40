// Reductions, and what is made of them.

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/narrow.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/float_functions.h"

namespace outboard {

using internal::Iota;
using internal::Mirror;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

using AxisList = std::vector<int64_t>;

// Adds up in a type wide enough, and gives floats their own type back.
NodeExpr SumOf(const NodeExpr& x, const AxisList& axes) {
  const DType sum = SumType(x->dtype);
  return x.Cast(AccumulateType(sum)).Sum(axes).Cast(sum);
}

int64_t CountOver(const NodeExpr& x, const AxisList& axes) {
  int64_t count = 1;
  for (const int64_t axis : axes) count *= x.rec().LengthOf(x, axis);
  return count;
}

// The same where some lengths are of variables, less `correction` but at least 0, as a node of the
// shape and type of `like`.
NodeExpr CountLike(const NodeExpr& like, const NodeExpr& x, const AxisList& axes,
                   int64_t correction = 0) {
  const NodeBuilder& rec = x.rec();
  NodeExpr count(rec, rec.ConstInt(DType::kI64, 1));
  for (const int64_t axis : axes) count = count * x.With(rec.ScalarOf(x->shape[axis]));
  if (correction != 0) count = Max(count - static_cast<double>(correction), 0);
  return x.With(rec.Full(count.Cast(like->dtype), like->shape));
}

bool IsStaticOver(const NodeExpr& x, const AxisList& axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [&](int64_t axis) { return x->shape[axis].is_const(); });
}

// The mean over `axes`, which stay. Over nothing it is NaN, as 0 / 0.
NodeExpr MeanOf(const NodeExpr& x, const AxisList& axes) {
  const DType dtype = FloatOf(x->dtype);
  const NodeExpr sum = x.Cast(AccumulateType(dtype)).Sum(axes);
  if (!IsStaticOver(x, axes)) return (sum / CountLike(sum, x, axes)).Cast(dtype);
  const auto count = static_cast<double>(CountOver(x, axes));
  const NodeExpr mean =
      count == 0 ? sum.Full(std::numeric_limits<double>::quiet_NaN()) : sum * (1 / count);
  return mean.Cast(dtype);
}

NodeExpr MaxOf(const NodeExpr& x, const AxisList& axes) {
  if (!IsBool(x->dtype)) return x.Max(axes);
  return x.Cast(DType::kU8).Max(axes).Cast(DType::kBool);
}

NodeExpr Mirrored(const NodeExpr& x) { return x.With(Mirror(x.rec(), x)); }

// The first place along `axis` where x is as large as its maximum.
NodeExpr PlaceOf(const NodeExpr& x, int axis) {
  const NodeExpr top = MaxOf(x, {axis}).Expand(x->shape);
  const NodeBuilder& rec = x.rec();
  const Dim& n = x->shape[axis];
  // NaN is the maximum where there is one, and differs from itself.
  NodeExpr is_top = x == top;
  if (IsFloat(x->dtype)) is_top = is_top | IsNan(x);
  // Counted from the end: n ... 1.
  const NodeExpr place = Iota(rec, DType::kI32, x->shape, axis);
  if (n.is_const()) {
    const auto length = static_cast<double>(n.value());
    return length - Where(is_top, length - place, 0).Max({axis});
  }
  const NodeExpr length = x.With(rec.Cast(n.expression(), DType::kI32));
  const auto spread = [&](const UOp* like) { return x.With(rec.Full(length, like->shape)); };
  const NodeExpr most = Where(is_top, spread(x) - place, 0).Max({axis});
  return spread(most) - most;
}

// Throws where there is no largest element: along an axis of no length, which a variable may give.
void CheckNotEmpty(const NodeBuilder& rec, const Tensor& x, int64_t axis) {
  const SymInt length = rec.SizeOf(ExprOf(rec, x)->shape[axis], *rec.lazy_graph());
  if (!internal::NarrowToFit(rec, std::vector<internal::Ascending>{{1, length}}))
    ThrowInvalid("argmax: the axis has no elements");
}

// Reduces over `axes` with `function`, which keeps the axes.
template <typename F>
Tensor Over(const Tensor& tensor, const Dims& axes, bool keepdim, const At& at, const F& function) {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, tensor);
  const AxisList over = rec.Axes(axes, x->rank());
  const NodeExpr y = function(x, over);
  return TensorOf(keepdim ? y : y.Squeeze(over));
}

// What is added to an exponent so that it does not overflow changes nothing, so it has no gradient.
NodeExpr HeldTop(const NodeExpr& x, const AxisList& axes) { return MaxOf(x, axes).Detach(); }

NodeExpr Centred(const NodeExpr& x, const AxisList& axes) {
  return x - HeldTop(x, axes).Expand(x->shape);
}

}  // namespace

Tensor Tensor::sum(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, SumOf);
}

Tensor Tensor::prod(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, [](const NodeExpr& x, const AxisList& over) {
    const DType dtype = SumType(x->dtype);
    const NodeExpr wide = x.Cast(AccumulateType(dtype));
    return wide.With(wide.rec().Reduce(Op::kMul, wide, over)).Cast(dtype);
  });
}

Tensor Tensor::mean(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, MeanOf);
}

Tensor Tensor::max(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, MaxOf);
}

Tensor Tensor::min(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, [](const NodeExpr& x, const AxisList& over) {
    return Mirrored(MaxOf(Mirrored(x), over));
  });
}

Tensor Tensor::any(const Axes& axes, bool keepdim, At at) const {
  const CallSite site(at);
  return cast(DType::kBool).max(axes, keepdim);
}

Tensor Tensor::all(const Axes& axes, bool keepdim, At at) const {
  const CallSite site(at);
  return cast(DType::kBool).min(axes, keepdim);
}

// sum((x - mean)^2) / (count - correction), in two passes.
Tensor Tensor::var(const Axes& axes, bool keepdim, int64_t correction, At at) const {
  return Over(*this, axes, keepdim, at, [&](const NodeExpr& x, const AxisList& over) {
    const DType dtype = FloatOf(x->dtype);
    const NodeExpr wide = x.Cast(AccumulateType(dtype));
    const NodeExpr y = wide - MeanOf(wide, over).Expand(wide->shape);
    const NodeExpr sum = (y * y).Sum(over);
    if (!IsStaticOver(x, over)) return (sum / CountLike(sum, x, over, correction)).Cast(dtype);
    const int64_t count = std::max<int64_t>(CountOver(x, over) - correction, 0);
    return (sum / static_cast<double>(count)).Cast(dtype);
  });
}

Tensor Tensor::std(const Axes& axes, bool keepdim, int64_t correction, At at) const {
  const CallSite site(at);
  return var(axes, keepdim, correction).sqrt();
}

Tensor Tensor::argmax(int64_t axis, bool keepdim, At at) const {
  const NodeBuilder rec(at);
  const int over = rec.Axis(axis, rank());
  CheckNotEmpty(rec, *this, over);
  const NodeExpr y = PlaceOf(ExprOf(rec, *this), over);
  return TensorOf(keepdim ? y : y.Squeeze({over}));
}

Tensor Tensor::argmax(At at) const {
  const CallSite site(at);
  return flatten().argmax(0);
}

Tensor Tensor::argmin(int64_t axis, bool keepdim, At at) const {
  const NodeBuilder rec(at);
  return TensorOf(Mirrored(ExprOf(rec, *this))).argmax(axis, keepdim);
}

// log(sum(exp(x - top))) + top.
Tensor Tensor::logsumexp(const Axes& axes, bool keepdim, At at) const {
  return Over(*this, axes, keepdim, at, [](const NodeExpr& given, const AxisList& over) {
    const NodeExpr x = given.Cast(FloatOf(given->dtype));
    const NodeExpr top = HeldTop(x, over);
    return Log(SumOf(Exp(x - top.Expand(x->shape)), over)) + top;
  });
}

// exp(x) / sum(exp(x)).
Tensor Tensor::softmax(const Axes& axes, At at) const {
  return Over(*this, axes, true, at, [](const NodeExpr& x, const AxisList& over) {
    const NodeExpr e = Exp(Centred(x.Cast(FloatOf(x->dtype)), over));
    return e / SumOf(e, over).Expand(x->shape);
  });
}

// x - log(sum(exp(x))).
Tensor Tensor::log_softmax(const Axes& axes, At at) const {
  return Over(*this, axes, true, at, [](const NodeExpr& x, const AxisList& over) {
    const NodeExpr y = Centred(x.Cast(FloatOf(x->dtype)), over);
    return y - Log(SumOf(Exp(y), over)).Expand(x->shape);
  });
}

}  // namespace outboard
