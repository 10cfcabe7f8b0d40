// Sorting without a branch and without a scatter. Elements become integer keys whose order is the
// one that is wanted; keys are ranked by counting, and the values are gathered at the end, so that
// their gradient is that of a gather.
#include "client/ops/index/sorting.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/ops/window/windows.h"

namespace outboard {

using internal::DimsToString;
using internal::GatherAlong;
using internal::NodeBuilder;

namespace {

// topk: blocks shorter than this are not worth a round of their own.
constexpr int64_t kBlockMin = 64;

// Rows of elements on their way to their places: for each the key and its place in the row of x.
struct Lanes {
  const UOp* key;    // [rows, n], i32 or i64
  const UOp* place;  // [rows, n], i32
};

const UOp* FullInt(const NodeBuilder& rec, const UOp* like, int64_t value) {
  return rec.Full(rec.ConstInt(like->dtype, value), like->shape);
}

// A signed integer for each element, ordered as the elements are. Those of floats: their bits, all
// but the sign turned over where that is set; NaN is above infinity.
const UOp* KeyOf(const NodeBuilder& rec, const UOp* x) {
  const bool wide = ByteWidth(x->dtype) == 8;
  const DType type = wide ? DType::kI64 : DType::kI32;
  const int64_t most = wide ? INT64_MAX : INT32_MAX;
  if (!IsFloat(x->dtype)) {
    if (x->dtype != DType::kU32 && x->dtype != DType::kU64) return rec.Cast(x, type);
    const UOp* const bits = rec.Make(Op::kBitcast, type, {x});
    return rec.Alu(Op::kXor, bits, FullInt(rec, bits, -most - 1));
  }
  const UOp* const number = rec.Cast(x, wide ? DType::kF64 : DType::kF32);
  const UOp* const bits = rec.Make(Op::kBitcast, type, {number});
  const UOp* const turned = rec.Alu(Op::kXor, bits, FullInt(rec, bits, most));
  const UOp* key = rec.Where(rec.Alu(Op::kCmpLt, bits, FullInt(rec, bits, 0)), turned, bits);
  const UOp* const is_zero = rec.Alu(Op::kCmpEq, number, rec.FullLike(number, 0));
  key = rec.Where(is_zero, FullInt(rec, bits, 0), key);  // -0.0 too
  return rec.Where(rec.Alu(Op::kCmpNe, number, number), FullInt(rec, bits, most), key);
}

// The first k of each row. An element's rank is the count of those that come before it; the one of
// rank r goes to place r.
Lanes FirstByRank(const NodeBuilder& rec, const Lanes& x, int64_t k) {
  const Dim rows = x.key->shape[0], n = x.key->shape[1];
  const Shape pairs = {rows, n, n};
  const UOp* const mine = rec.Expand(rec.Reshape(x.key, {rows, n, 1}), pairs);
  const UOp* const other = rec.Expand(rec.Reshape(x.key, {rows, 1, n}), pairs);
  const UOp* const is_earlier = rec.Alu(Op::kCmpLt, rec.IotaAlong(DType::kI32, pairs, 2),
                                        rec.IotaAlong(DType::kI32, pairs, 1));
  const UOp* const comes_before =
      rec.Where(is_earlier, rec.Not(rec.Alu(Op::kCmpLt, mine, other)),  // other <= mine
                rec.Alu(Op::kCmpLt, other, mine));
  const UOp* const count = rec.Reduce(Op::kAdd, rec.Cast(comes_before, DType::kI32), {2});
  // Kept: computed again for each place, n^2 comparisons would be n^3.
  const UOp* const rank = rec.Alu(Op::kContiguous, rec.Reshape(count, {rows, 1, n}));
  const Shape full = {rows, Dim(k), n};
  const UOp* const is_here =
      rec.Alu(Op::kCmpEq, rec.Expand(rank, full), rec.IotaAlong(DType::kI32, full, 1));
  const UOp* const i = rec.IotaAlong(DType::kI32, full, 2);
  const UOp* const from = rec.Alu(
      Op::kContiguous,
      rec.Squeeze(rec.Reduce(Op::kAdd, rec.Where(is_here, i, rec.FullLike(i, 0)), {2}), {2}));
  return {GatherAlong(rec, x.key, 1, from), GatherAlong(rec, x.place, 1, from)};
}

// The lanes as rows of `width` elements. What fills the last row comes after everything else.
Lanes Blocks(const NodeBuilder& rec, const Lanes& x, int64_t width) {
  const int64_t n = x.key->shape[1].value(), count = (n + width - 1) / width;
  const Shape lo_hi = {0, 0, 0, Dim(count * width - n)};
  const Shape blocks = {Dim(x.key->shape[0].value() * count), Dim(width)};
  const UOp* const key = rec.Pad(x.key, lo_hi);
  const UOp* const inside = rec.Pad(FullInt(rec, x.key, 1), lo_hi);
  const UOp* const last = FullInt(rec, key, IntMax(key->dtype));
  const UOp* const is_real = rec.Alu(Op::kCmpNe, inside, FullInt(rec, inside, 0));
  return {rec.Reshape(rec.Where(is_real, key, last), blocks),
          rec.Reshape(rec.Pad(x.place, lo_hi), blocks)};
}

Sorted FirstOf(const NodeBuilder& rec, const UOp* x, int64_t axis, int64_t k, bool descending) {
  const int place = rec.Axis(axis, x->rank());
  const int64_t n = rec.LengthOf(x, place);
  if (k < 0 || k > n) rec.Invalid(absl::StrCat("topk: ", k, " of an axis of ", n));
  // The axis last, and the others as one: [rows, n].
  std::vector<int64_t> order, back;
  Shape turned;
  for (int i = 0; i < x->rank(); ++i)
    if (i != place) order.push_back(i);
  order.push_back(place);
  for (int i = 0; i < x->rank(); ++i) back.push_back(i < place ? i : i - 1);
  back[place] = x->rank() - 1;
  for (const int64_t i : order) turned.push_back(x->shape[i]);
  turned.back() = Dim(k);
  const int64_t count = rec.CountOf(x->shape), rows = n == 0 ? 0 : count / n;
  if (rows == 0 || k == 0) {
    const UOp* const none = rec.Full(rec.ConstInt(DType::kI32, 0), turned);
    const UOp* const indices = rec.Permute(none, back);
    Shape begin_end;
    for (const Dim& dim : indices->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
    return {Tensor::FromNode(rec, rec.Shrink(x, begin_end)), Tensor::FromNode(rec, indices)};
  }
  const UOp* key = KeyOf(rec, rec.Reshape(rec.Permute(x, order), {Dim(rows), Dim(n)}));
  if (descending) key = rec.Alu(Op::kXor, key, FullInt(rec, key, -1));
  Lanes lanes = {rec.Alu(Op::kContiguous, key), rec.IotaAlong(DType::kI32, key->shape, 1)};
  const auto best = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(k)));
  const int64_t width = std::max(2 * best, kBlockMin);
  while (lanes.key->shape[1].value() > width) {
    lanes = FirstByRank(rec, Blocks(rec, lanes, width), best);
    const Shape joined = {Dim(rows), Dim(lanes.key->shape[0].value() / rows * best)};
    lanes = {rec.Alu(Op::kContiguous, rec.Reshape(lanes.key, joined)),
             rec.Alu(Op::kContiguous, rec.Reshape(lanes.place, joined))};
  }
  const UOp* const first = FirstByRank(rec, lanes, k).place;
  const UOp* const indices = rec.Permute(rec.Reshape(first, turned), back);
  return {Tensor::FromNode(rec, GatherAlong(rec, x, place, indices)),
          Tensor::FromNode(rec, indices)};
}

}  // namespace

Sorted sort(const Tensor& x, int64_t axis, bool descending, At at) {
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  return FirstOf(rec, node, axis, rec.LengthOf(node, rec.Axis(axis, node->rank())), descending);
}

Tensor argsort(const Tensor& x, int64_t axis, bool descending, At at) {
  return sort(x, axis, descending, at).indices;
}

Sorted topk(const Tensor& x, int64_t k, int64_t axis, bool largest, At at) {
  const NodeBuilder rec(at);
  return FirstOf(rec, x.NodeIn(rec), axis, k, largest);
}

}  // namespace outboard
