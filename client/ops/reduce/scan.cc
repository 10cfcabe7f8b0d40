// Running sums, products and extremes.
#include <algorithm>
#include <limits>

#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/float_functions.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/reduce/scans.h"

namespace outboard {

using internal::NodeBuilder;

namespace {

// Up to here a running sum is a sum for each place, n^2 / 2 additions; a longer axis is cut into
// blocks of so many, and the sums of the blocks are added up the same way. As sums, so products and
// largest ones.
constexpr int64_t kBlock = 256;

const UOp* Range(const NodeBuilder& rec, const UOp* x, int axis, int64_t begin, int64_t end) {
  Shape begin_end;
  for (const Dim& dim : x->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
  begin_end[2 * axis] = Dim(begin);
  begin_end[2 * axis + 1] = Dim(end);
  return rec.Shrink(x, begin_end);
}

// What changes nothing beside another element.
const UOp* Identity(const NodeBuilder& rec, Op op, const UOp* like) {
  if (op == Op::kMul) return rec.FullLike(like, 1);
  if (op == Op::kAdd) return rec.FullLike(like, 0);
  if (IsFloat(like->dtype)) return rec.FullLike(like, -std::numeric_limits<double>::infinity());
  return rec.Full(rec.ConstInt(like->dtype, IntMin(like->dtype)), like->shape);
}

// With the identity around.
const UOp* PadAxis(const NodeBuilder& rec, Op op, const UOp* x, int axis, int64_t before,
                   int64_t after) {
  Shape lo_hi(2 * x->shape.size(), Dim(0));
  lo_hi[2 * axis] = Dim(before);
  lo_hi[2 * axis + 1] = Dim(after);
  const UOp* const padded = rec.Pad(x, lo_hi);
  if (op == Op::kAdd) return padded;
  const UOp* const inside = rec.Pad(rec.Full(rec.ConstInt(DType::kBool, 1), x->shape), lo_hi);
  return rec.Where(inside, padded, Identity(rec, op, padded));
}

const UOp* ShortScan(const NodeBuilder& rec, Op op, const UOp* x, int axis) {
  Shape full(x->shape.begin(), x->shape.end());  // [..., i, j, ...]
  full.insert(full.begin() + axis, x->shape[axis]);
  Shape apart(x->shape.begin(), x->shape.end());
  apart.insert(apart.begin() + axis, Dim(1));
  const UOp* const later = rec.Alu(Op::kCmpLt, rec.IotaAlong(DType::kI32, full, axis),
                                   rec.IotaAlong(DType::kI32, full, axis + 1));
  const UOp* const terms = rec.Expand(rec.Reshape(x, apart), full);
  const UOp* const counted = rec.Where(later, Identity(rec, op, terms), terms);
  return rec.Squeeze(rec.Reduce(op, counted, {axis + 1}), {axis + 1});
}

const UOp* Scan(const NodeBuilder& rec, Op op, const UOp* x, int axis) {
  const int64_t length = rec.LengthOf(x, axis);
  if (length <= kBlock) return ShortScan(rec, op, x, axis);
  const int64_t blocks = (length + kBlock - 1) / kBlock;
  Shape cut(x->shape.begin(), x->shape.end());
  cut[axis] = Dim(kBlock);
  cut.insert(cut.begin() + axis, Dim(blocks));
  const UOp* const padded = PadAxis(rec, op, x, axis, 0, blocks * kBlock - length);
  const UOp* const inner = ShortScan(rec, op, rec.Reshape(padded, cut), axis + 1);
  // What all blocks before this one come to.
  const UOp* const totals =
      rec.Squeeze(Range(rec, inner, axis + 1, kBlock - 1, kBlock), {axis + 1});
  const UOp* const upto = Scan(rec, op, Range(rec, totals, axis, 0, blocks - 1), axis);
  Shape one(cut);
  one[axis + 1] = Dim(1);
  const UOp* const before = rec.Reshape(PadAxis(rec, op, upto, axis, 1, 0), one);
  Shape joined(x->shape.begin(), x->shape.end());
  joined[axis] = Dim(blocks * kBlock);
  const UOp* const sums = rec.Reshape(rec.Alu(op, inner, rec.Expand(before, cut)), joined);
  return Range(rec, sums, axis, 0, length);
}

// A scalar is a vector of one element.
template <typename F>
Tensor Along(const Tensor& tensor, int64_t axis, const At& at, const F& function) {
  const NodeBuilder rec(at);
  const UOp* const x = tensor.NodeIn(rec);
  const int place = rec.Axis(axis, std::max(x->rank(), 1));
  const UOp* const y = function(rec, x->rank() == 0 ? rec.Reshape(x, {Dim(1)}) : x, place);
  return Tensor::FromNode(rec, rec.Reshape(y, x->shape));
}

// Where a running extreme changes, which is where it is for the first time. A NaN stays, as the
// first of all.
const UOp* PlacesOf(const NodeBuilder& rec, const UOp* values, int axis) {
  const UOp* const places = rec.IotaAlong(DType::kI32, values->shape, axis);
  const int64_t length = rec.LengthOf(values, axis);
  if (length == 0) return places;
  Shape lo_hi(2 * values->shape.size(), Dim(0));
  lo_hi[2 * axis] = Dim(1);
  const UOp* const before = rec.Pad(Range(rec, values, axis, 0, length - 1), lo_hi);
  const UOp* changes = rec.Alu(Op::kCmpNe, before, values);
  if (IsFloat(values->dtype))
    changes = rec.Alu(Op::kAnd, changes, rec.Alu(Op::kCmpEq, before, before));
  return Scan(rec, Op::kMax, rec.Where(changes, places, rec.FullLike(places, 0)), axis);
}

RunningExtreme ExtremesOf(const Tensor& tensor, int64_t axis, bool smallest, const At& at) {
  const Tensor values =
      Along(tensor, axis, at, [&](const NodeBuilder& rec, const UOp* x, int place) {
        const UOp* const wide = IsBool(x->dtype) ? rec.Cast(x, DType::kU8) : x;
        const UOp* const turned = smallest ? internal::Mirror(rec, wide) : wide;
        const UOp* const top = Scan(rec, Op::kMax, turned, place);
        return rec.Cast(smallest ? internal::Mirror(rec, top) : top, x->dtype);
      });
  return {values, Along(values, axis, at, PlacesOf)};
}

}  // namespace

Tensor Tensor::cumsum(int64_t axis, At at) const {
  return Along(*this, axis, at, [](const NodeBuilder& rec, const UOp* x, int place) {
    const DType type = SumType(x->dtype);
    const UOp* const wide = rec.Cast(x, AccumulateType(type));
    return rec.Cast(Scan(rec, Op::kAdd, wide, place), type);
  });
}

Tensor cumprod(const Tensor& x, int64_t axis, At at) {
  return Along(x, axis, at, [](const NodeBuilder& rec, const UOp* x, int place) {
    const UOp* const wide = rec.Cast(x, AccumulateType(SumType(x->dtype)));
    return rec.Cast(Scan(rec, Op::kMul, wide, place), x->dtype);
  });
}

// Each place by the largest up to it: what is added to an exponent so that it does not overflow has
// no gradient.
Tensor logcumsumexp(const Tensor& x, int64_t axis, At at) {
  return Along(x, axis, at, [](const NodeBuilder& rec, const UOp* given, int place) {
    const UOp* const x = rec.Cast(given, AccumulateType(FloatOf(given->dtype)));
    const UOp* const top = Scan(rec, Op::kMax, x, place);
    const UOp* const held = rec.Make(Op::kDetach, top->dtype, {top});
    // Of nothing but -inf the difference would be NaN.
    const UOp* const none = rec.FullLike(x, -std::numeric_limits<double>::infinity());
    const UOp* const shift = rec.Where(rec.Alu(Op::kCmpEq, held, none), rec.FullLike(x, 0), held);
    Shape full(x->shape.begin(), x->shape.end());  // [..., i, j, ...]
    full.insert(full.begin() + place, x->shape[place]);
    const auto spread = [&](const UOp* of, int at) {
      Shape apart(x->shape.begin(), x->shape.end());
      apart.insert(apart.begin() + at, Dim(1));
      return rec.Expand(rec.Reshape(of, apart), full);
    };
    const UOp* const later = internal::Less(rec, rec.IotaAlong(DType::kI32, full, place),
                                            rec.IotaAlong(DType::kI32, full, place + 1));
    const UOp* const terms = rec.Sub(spread(x, place), spread(shift, place + 1));
    const UOp* const counted =
        rec.Where(later, rec.FullLike(terms, -std::numeric_limits<double>::infinity()), terms);
    const UOp* const sum =
        rec.Squeeze(rec.Reduce(Op::kAdd, rec.Alu(Op::kExp, counted), {place + 1}), {place + 1});
    return rec.Cast(rec.Add(rec.Alu(Op::kLog, sum), shift), FloatOf(given->dtype));
  });
}

RunningExtreme cummax(const Tensor& x, int64_t axis, At at) {
  return ExtremesOf(x, axis, false, at);
}
RunningExtreme cummin(const Tensor& x, int64_t axis, At at) {
  return ExtremesOf(x, axis, true, at);
}

}  // namespace outboard
