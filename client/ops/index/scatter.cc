#include "client/ops/index/scatter.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/window/windows.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;

namespace {

// What a scatter is given. [R] stands for the shape of the index with the axis as long as in x.
struct Given {
  const UOp* x;
  const UOp* src;     // nowhere shorter than the index
  const UOp* index;   // negative places counted from the end
  const UOp* points;  // bool [R, J]: whether element J of the index points here
  int axis;
};

// `x` [..., J at the axis, ...] as [..., 1, ..., J].
const UOp* AxisLast(const NodeBuilder& rec, const UOp* x, int axis) {
  std::vector<int64_t> order;
  for (int i = 0; i < x->rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  Shape apart(x->shape.begin(), x->shape.end());
  apart.push_back(apart[axis]);
  apart[axis] = Dim(1);
  return rec.Reshape(rec.Permute(x, order), apart);
}

Given GivenOf(const NodeBuilder& rec, const Tensor& tensor, int64_t axis, const Tensor& places,
              const Arg& arg) {
  Given given;
  const UOp* const x = given.x = tensor.NodeIn(rec);
  const UOp* const index = internal::IndexNode(rec, places);
  given.axis = rec.Axis(axis, x->rank());
  given.src = internal::NodeOfArg(rec, arg, x->dtype);
  if (!arg.is_tensor()) given.src = rec.Full(rec.Cast(given.src, x->dtype), index->shape);
  if (given.src->dtype != x->dtype)
    rec.Invalid(absl::StrCat("scatter: elements of ", std::string(Name(given.src->dtype)),
                             " to a tensor of ", std::string(Name(x->dtype)), "; cast one"));
  bool fits = index->rank() == x->rank() && given.src->rank() == x->rank();
  for (int i = 0; fits && i < x->rank(); ++i)
    fits = rec.LengthOf(index, i) <= rec.LengthOf(given.src, i) &&
           (i == given.axis || rec.LengthOf(index, i) <= rec.LengthOf(x, i));
  if (!fits)
    rec.Invalid(absl::StrCat("scatter: an index of ", DimsToString(index->shape),
                             " and a source of ", DimsToString(given.src->shape), " along axis ",
                             given.axis, " of ", DimsToString(x->shape)));
  const int64_t length = rec.LengthOf(x, given.axis);
  given.index = internal::FromTheEnd(rec, index, length);
  Shape pairs(index->shape.begin(), index->shape.end());
  pairs.push_back(pairs[given.axis]);
  pairs[given.axis] = Dim(length);
  const DType type = internal::PlaceType(given.index);
  const UOp* const wanted =
      rec.Expand(AxisLast(rec, rec.Cast(given.index, type), given.axis), pairs);
  given.points = rec.Alu(Op::kCmpEq, rec.IotaAlong(type, pairs, given.axis), wanted);
  return given;
}

// The elements of src that the index uses, as [R, J].
const UOp* Elements(const NodeBuilder& rec, const Given& given) {
  Shape begin_end;
  for (const Dim& dim : given.index->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
  return rec.Expand(AxisLast(rec, rec.Shrink(given.src, begin_end), given.axis),
                    given.points->shape);
}

// [R, 1] as [R], and padded to the shape of x with zeros.
const UOp* Whole(const NodeBuilder& rec, const Given& given, const UOp* y) {
  if (y->rank() > given.x->rank()) y = rec.Squeeze(y, {y->rank() - 1});
  Shape lo_hi;
  for (int i = 0; i < y->rank(); ++i)
    lo_hi.insert(lo_hi.end(), {Dim(0), Dim(given.x->shape[i].value() - y->shape[i].value())});
  return rec.Pad(y, lo_hi);
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Arg& src) {
  const NodeBuilder rec(src.at());
  const Given given = GivenOf(rec, x, axis, index, src);
  const UOp* const points = given.points;
  const int last_axis = points->rank() - 1;
  if (points->shape[last_axis] == Dim(0)) return x;
  const UOp* const order = rec.IotaAlong(DType::kI32, points->shape, last_axis);
  const UOp* const last = rec.Squeeze(
      rec.Reduce(Op::kMax, rec.Where(points, order, rec.FullLike(order, -1)), {last_axis}),
      {last_axis});
  const UOp* const is_written = rec.Alu(Op::kCmpLt, rec.FullLike(last, -1), last);
  const UOp* const written = internal::GatherAlong(rec, given.src, given.axis, last);
  return Tensor::FromNode(
      rec, rec.Where(Whole(rec, given, is_written), Whole(rec, given, written), given.x));
}

Tensor scatter_reduce(const Tensor& x, int64_t axis, const Tensor& index, const Arg& src,
                      ScatterReduce how, bool include_self) {
  const NodeBuilder rec(src.at());
  const Given given = GivenOf(rec, x, axis, index, src);
  const DType dtype = given.x->dtype;
  if (IsBool(dtype)) rec.Invalid("scatter_reduce: needs numbers, not bool");
  if (given.points->shape.back() == Dim(0)) return x;
  const bool is_mean = how == ScatterReduce::kMean, is_min = how == ScatterReduce::kMin;
  const DType type = is_mean ? FloatOf(dtype) : dtype;
  const DType wide = AccumulateType(type);
  const int last = given.points->rank() - 1;
  const UOp* own = rec.Cast(given.x, wide);
  const UOp* elements = rec.Cast(Elements(rec, given), wide);
  if (is_min) own = internal::Mirror(rec, own), elements = internal::Mirror(rec, elements);
  Op op = Op::kAdd;
  const UOp* neutral = rec.FullLike(elements, 0);
  if (how == ScatterReduce::kProd) {
    op = Op::kMul;
    neutral = rec.FullLike(elements, 1);
  } else if (how == ScatterReduce::kMax || is_min) {
    op = Op::kMax;
    neutral = IsFloat(wide) ? rec.FullLike(elements, -std::numeric_limits<double>::infinity())
                            : rec.Full(rec.ConstInt(wide, IntMin(wide)), elements->shape);
  }
  const UOp* y =
      Whole(rec, given, rec.Reduce(op, rec.Where(given.points, elements, neutral), {last}));
  const UOp* count =
      Whole(rec, given, rec.Reduce(Op::kAdd, rec.Cast(given.points, DType::kI32), {last}));
  const UOp* const is_touched = rec.Alu(Op::kCmpNe, count, rec.FullLike(count, 0));
  if (include_self) y = rec.Alu(op, own, y);
  if (is_mean) {
    if (include_self) count = rec.Add(count, rec.FullLike(count, 1));
    const UOp* const parts = rec.Where(is_touched, count, rec.FullLike(count, 1));
    y = rec.Alu(Op::kFDiv, y, rec.Cast(parts, wide));
  }
  y = rec.Where(is_touched, y, own);
  return Tensor::FromNode(rec, rec.Cast(is_min ? internal::Mirror(rec, y) : y, type));
}

}  // namespace outboard
