// Running sums, products and extremes.
#include <algorithm>
#include <limits>

#include "client/lazy/operands.h"
#include "client/ops/elementwise/float_functions.h"
#include "client/ops/reduce/scans.h"

namespace outboard {

using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Up to here a running sum is a sum for each place, n^2 / 2 additions; a longer axis is cut into
// blocks of so many, and the sums of the blocks are added up the same way. As sums, so products and
// largest ones.
constexpr int64_t kBlock = 256;

NodeExpr Range(const NodeExpr& x, int axis, int64_t begin, int64_t end) {
  Shape begin_end;
  for (const Dim& dim : x->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
  begin_end[2 * axis] = Dim(begin);
  begin_end[2 * axis + 1] = Dim(end);
  return x.With(x.rec().Shrink(x, begin_end));
}

// What changes nothing beside another element.
NodeExpr Identity(Op op, const NodeExpr& like) {
  if (op == Op::kMul) return like.Full(1);
  if (op == Op::kAdd) return like.Full(0);
  return IsFloat(like->dtype) ? like.Full(-kInfinity) : like.FullInt(IntMin(like->dtype));
}

// With the identity around.
NodeExpr PadAxis(Op op, const NodeExpr& x, int axis, int64_t before, int64_t after) {
  const NodeBuilder& rec = x.rec();
  Shape lo_hi(2 * x->shape.size(), Dim(0));
  lo_hi[2 * axis] = Dim(before);
  lo_hi[2 * axis + 1] = Dim(after);
  const NodeExpr padded = x.With(rec.Pad(x, lo_hi));
  if (op == Op::kAdd) return padded;
  const UOp* const inside = rec.Pad(rec.Full(rec.ConstInt(DType::kBool, 1), x->shape), lo_hi);
  return Where(x.With(inside), padded, Identity(op, padded));
}

// [..., i, j, ...]: each place i of `axis` beside all places j of it.
struct Square {
  Shape shape;
  int axis;

  Square(const NodeExpr& x, int axis_in) : shape(x->shape.begin(), x->shape.end()), axis(axis_in) {
    shape.insert(shape.begin() + axis, shape[axis]);
  }
  NodeExpr IsLater(const NodeBuilder& rec) const {  // j comes after i
    return Iota(rec, DType::kI32, shape, axis) < Iota(rec, DType::kI32, shape, axis + 1);
  }
  NodeExpr Of(const NodeExpr& x, int without) const {  // x by i or by j
    Shape apart(x->shape.begin(), x->shape.end());
    apart.insert(apart.begin() + without, Dim(1));
    return x.Reshape(apart).Expand(shape);
  }
  NodeExpr ByPlace(const NodeExpr& x) const { return Of(x, axis + 1); }
  NodeExpr ByOther(const NodeExpr& x) const { return Of(x, axis); }
};

NodeExpr ShortScan(Op op, const NodeExpr& x, int axis) {
  const Square square(x, axis);
  const NodeExpr terms = square.ByOther(x);
  const NodeExpr counted = Where(square.IsLater(x.rec()), Identity(op, terms), terms);
  return x.With(x.rec().Reduce(op, counted, {axis + 1})).Squeeze({axis + 1});
}

NodeExpr Scan(Op op, const NodeExpr& x, int axis) {
  const int64_t length = x.rec().LengthOf(x, axis);
  if (length <= kBlock) return ShortScan(op, x, axis);
  const int64_t blocks = (length + kBlock - 1) / kBlock;
  Shape cut(x->shape.begin(), x->shape.end()), joined = cut;
  cut[axis] = Dim(kBlock);
  cut.insert(cut.begin() + axis, Dim(blocks));
  Shape one = cut;
  one[axis + 1] = Dim(1);
  joined[axis] = Dim(blocks * kBlock);
  const NodeExpr padded = PadAxis(op, x, axis, 0, blocks * kBlock - length);
  const NodeExpr inner = ShortScan(op, padded.Reshape(cut), axis + 1);
  // What all blocks before this one come to.
  const NodeExpr totals = Range(inner, axis + 1, kBlock - 1, kBlock).Squeeze({axis + 1});
  const NodeExpr upto = Scan(op, Range(totals, axis, 0, blocks - 1), axis);
  const NodeExpr before = PadAxis(op, upto, axis, 1, 0).Reshape(one).Expand(cut);
  return Range(inner.Binary(op, before).Reshape(joined), axis, 0, length);
}

// A scalar is a vector of one element. An axis whose length is of a variable has its largest length
// meanwhile: a place depends on those before it only.
template <typename F>
Tensor Along(const Tensor& tensor, int64_t axis, const F& function) {
  return internal::Of(tensor, CallSite::Line(), [&](const NodeExpr& x) {
    const int place = x.rec().Axis(axis, std::max(x->rank(), 1));
    if (x->rank() == 0) return function(x.Reshape({Dim(1)}), place).Reshape(x->shape);
    if (x->shape[place].is_const()) return function(x, place);
    return function(internal::PaddedToMost(x, {place}), place)
        .Shrink(place, Dim(0), x->shape[place]);
  });
}

// Where a running extreme changes, which is where it is for the first time. A NaN stays, as the
// first of all.
NodeExpr PlacesOf(const NodeExpr& values, int axis) {
  const NodeExpr places = Iota(values.rec(), DType::kI32, values->shape, axis);
  const int64_t length = values.rec().LengthOf(values, axis);
  if (length == 0) return places;
  const NodeExpr before = PadAxis(Op::kAdd, Range(values, axis, 0, length - 1), axis, 1, 0);
  NodeExpr changes = before != values;
  if (IsFloat(values->dtype)) changes = changes & (before == before);
  return Scan(Op::kMax, Where(changes, places, 0), axis);
}

RunningExtreme ExtremesOf(const Tensor& tensor, int64_t axis, bool smallest) {
  const auto turned = [&](const NodeExpr& x) {
    return smallest ? x.With(internal::Mirror(x.rec(), x)) : x;
  };
  const Tensor values = Along(tensor, axis, [&](const NodeExpr& x, int place) {
    const NodeExpr wide = IsBool(x->dtype) ? x.Cast(DType::kU8) : x;
    return turned(Scan(Op::kMax, turned(wide), place)).Cast(x->dtype);
  });
  return {values, Along(values, axis, PlacesOf)};
}

}  // namespace

Tensor Tensor::cumsum(int64_t axis, At at) const {
  const CallSite site(at);
  return Along(*this, axis, [](const NodeExpr& x, int place) {
    const DType type = SumType(x->dtype);
    return Scan(Op::kAdd, x.Cast(AccumulateType(type)), place).Cast(type);
  });
}

Tensor cumprod(const Tensor& x, int64_t axis, At at) {
  const CallSite site(at);
  return Along(x, axis, [](const NodeExpr& x, int place) {
    return Scan(Op::kMul, x.Cast(AccumulateType(SumType(x->dtype))), place).Cast(x->dtype);
  });
}

// log(sum over j <= i of exp(x_j - top_i)) + top_i, by the largest up to each place: what is added
// to an exponent so that it does not overflow has no gradient.
Tensor logcumsumexp(const Tensor& x, int64_t axis, At at) {
  const CallSite site(at);
  return Along(x, axis, [](const NodeExpr& given, int place) {
    const DType type = FloatOf(given->dtype);
    const NodeExpr x = given.Cast(AccumulateType(type));
    const NodeExpr held = Scan(Op::kMax, x, place).Detach();
    // Of nothing but -inf the difference would be NaN.
    const NodeExpr top = Where(held == -kInfinity, 0, held);
    const Square square(x, place);
    const NodeExpr terms = square.ByOther(x) - square.ByPlace(top);
    const NodeExpr counted = Where(square.IsLater(x.rec()), -kInfinity, terms);
    const NodeExpr sum = Exp(counted).Sum({place + 1}).Squeeze({place + 1});
    return (Log(sum) + top).Cast(type);
  });
}

RunningExtreme cummax(const Tensor& x, int64_t axis, At at) {
  const CallSite site(at);
  return ExtremesOf(x, axis, false);
}
RunningExtreme cummin(const Tensor& x, int64_t axis, At at) {
  const CallSite site(at);
  return ExtremesOf(x, axis, true);
}

}  // namespace outboard
