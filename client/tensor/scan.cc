// Running sums.
#include "client/tensor/promote.h"
#include "client/tensor/recorder.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::Recorder;

namespace {

// Up to here a running sum is a sum for each place, n^2 / 2 additions; a longer axis is cut into
// blocks of so many, and the sums of the blocks are added up the same way.
constexpr int64_t kBlock = 256;

const UOp* Range(const Recorder& rec, const UOp* x, int axis, int64_t begin, int64_t end) {
  Shape begin_end;
  for (const Dim& dim : x->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
  begin_end[2 * axis] = Dim(begin);
  begin_end[2 * axis + 1] = Dim(end);
  return rec.Shrink(x, begin_end);
}

const UOp* PadAxis(const Recorder& rec, const UOp* x, int axis, int64_t before, int64_t after) {
  Shape lo_hi(2 * x->shape.size(), Dim(0));
  lo_hi[2 * axis] = Dim(before);
  lo_hi[2 * axis + 1] = Dim(after);
  return rec.Pad(x, lo_hi);
}

const UOp* ShortSums(const Recorder& rec, const UOp* x, int axis) {
  Shape full(x->shape.begin(), x->shape.end());  // [..., i, j, ...]
  full.insert(full.begin() + axis, x->shape[axis]);
  Shape apart(x->shape.begin(), x->shape.end());
  apart.insert(apart.begin() + axis, Dim(1));
  const UOp* const later = rec.Alu(Op::kCmpLt, rec.IotaAlong(DType::kI32, full, axis),
                                   rec.IotaAlong(DType::kI32, full, axis + 1));
  const UOp* const terms = rec.Expand(rec.Reshape(x, apart), full);
  const UOp* const counted = rec.Where(later, rec.FullLike(terms, 0), terms);
  return rec.Squeeze(rec.Reduce(Op::kAdd, counted, {axis + 1}), {axis + 1});
}

const UOp* RunningSums(const Recorder& rec, const UOp* x, int axis) {
  const int64_t length = rec.LengthOf(x, axis);
  if (length <= kBlock) return ShortSums(rec, x, axis);
  const int64_t blocks = (length + kBlock - 1) / kBlock;
  Shape cut(x->shape.begin(), x->shape.end());
  cut[axis] = Dim(kBlock);
  cut.insert(cut.begin() + axis, Dim(blocks));
  const UOp* const padded = PadAxis(rec, x, axis, 0, blocks * kBlock - length);
  const UOp* const inner = ShortSums(rec, rec.Reshape(padded, cut), axis + 1);
  // What all blocks before this one add up to.
  const UOp* const totals =
      rec.Squeeze(Range(rec, inner, axis + 1, kBlock - 1, kBlock), {axis + 1});
  const UOp* const upto = RunningSums(rec, Range(rec, totals, axis, 0, blocks - 1), axis);
  Shape one(cut);
  one[axis + 1] = Dim(1);
  const UOp* const before = rec.Reshape(PadAxis(rec, upto, axis, 1, 0), one);
  Shape joined(x->shape.begin(), x->shape.end());
  joined[axis] = Dim(blocks * kBlock);
  const UOp* const sums = rec.Reshape(rec.Add(inner, rec.Expand(before, cut)), joined);
  return Range(rec, sums, axis, 0, length);
}

}  // namespace

Tensor Tensor::cumsum(int64_t axis, At at) const {
  const Recorder rec(at);
  const UOp* const x = NodeIn(rec);
  const int place = rec.Axis(axis, x->rank());
  const DType type = SumType(x->dtype);
  const UOp* const wide = rec.Cast(x, AccumulateType(type));
  return FromNode(rec, rec.Cast(RunningSums(rec, wide, place), type));
}

}  // namespace outboard
