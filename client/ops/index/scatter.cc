#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_expr.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/index/index.h"
#include "client/ops/window/sliding.h"

namespace outboard {

using internal::DimsToString;
using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

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
                             given.axis, " of ", DimsToString(x->shape)),
                Mistake::kCheck);
  const int64_t length = rec.LengthOf(x, given.axis);
  given.index = internal::FromTheEnd({rec, index}, length);
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
  const NodeExpr order = Iota(rec, DType::kI32, points->shape, last_axis);
  const NodeExpr last = Where({rec, points}, order, -1).Max({last_axis}).Squeeze({last_axis});
  const NodeExpr is_written = last > -1;
  const UOp* const written = internal::GatherAlong({rec, given.src}, given.axis, last);
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
  const auto turned = [&](const NodeExpr& x) {
    return is_min ? x.With(internal::Mirror(rec, x)) : x;
  };
  const auto whole = [&](const NodeExpr& x) { return x.With(Whole(rec, given, x)); };
  const NodeExpr points(rec, given.points), own = turned(NodeExpr(rec, given.x).Cast(wide));
  const NodeExpr elements = turned(NodeExpr(rec, Elements(rec, given)).Cast(wide));
  Op op = Op::kAdd;
  NodeExpr neutral = elements.Full(0);
  if (how == ScatterReduce::kProd) {
    op = Op::kMul;
    neutral = elements.Full(1);
  } else if (how == ScatterReduce::kMax || is_min) {
    op = Op::kMax;
    neutral = IsFloat(wide) ? elements.Full(-std::numeric_limits<double>::infinity())
                            : elements.FullInt(IntMin(wide));
  }
  const NodeExpr counted = Where(points, elements, neutral);
  NodeExpr y = whole(counted.With(rec.Reduce(op, counted, {last})));
  NodeExpr count = whole(points.Cast(DType::kI32).Sum({last}));
  const NodeExpr is_touched = count != 0;
  if (include_self) y = own.Binary(op, y);
  if (is_mean) {
    if (include_self) count = count + 1;
    y = y / Where(is_touched, count, 1).Cast(wide);
  }
  return TensorOf(turned(Where(is_touched, y, own)).Cast(type));
}

}  // namespace outboard
