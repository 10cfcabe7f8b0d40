// Sorting without a branch and without a scatter. Elements become integer keys whose order is the
// one that is wanted; keys are ranked by counting, and the values are gathered at the end, so that
// their gradient is that of a gather.
#include "client/ops/index/sorting.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_expr.h"
#include "client/ops/window/windows.h"

namespace outboard {

using internal::GatherAlong;
using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

// topk: blocks shorter than this are not worth a round of their own.
constexpr int64_t kBlockMin = 64;

// Rows of elements on their way to their places: for each the key and its place in the row of x.
struct Lanes {
  NodeExpr key;    // [rows, n], i32 or i64
  NodeExpr place;  // [rows, n], i32
};

// A signed integer for each element, ordered as the elements are. Those of floats: their bits, all
// but the sign turned over where that is set; NaN is above infinity.
NodeExpr KeyOf(const NodeExpr& x) {
  const bool wide = ByteWidth(x->dtype) == 8;
  const DType type = wide ? DType::kI64 : DType::kI32;
  const int64_t most = wide ? INT64_MAX : INT32_MAX;
  if (!IsFloat(x->dtype)) {
    if (x->dtype != DType::kU32 && x->dtype != DType::kU64) return x.Cast(type);
    const NodeExpr bits = Bitcast(x, type);
    return bits ^ bits.FullInt(-most - 1);
  }
  const NodeExpr number = x.Cast(wide ? DType::kF64 : DType::kF32);
  const NodeExpr bits = Bitcast(number, type), zero = bits.FullInt(0), nan = bits.FullInt(most);
  const NodeExpr key = Where(bits < zero, bits ^ nan, bits);
  return Where(IsNan(number), nan, Where(number == 0, zero, key));  // -0.0 is 0 too
}

// The first k of each row. An element's rank is the count of those that come before it; the one of
// rank r goes to place r.
Lanes FirstByRank(const Lanes& x, int64_t k) {
  const NodeBuilder& rec = x.key.rec();
  const Dim rows = x.key->shape[0], n = x.key->shape[1];
  const Shape pairs = {rows, n, n};
  const NodeExpr mine = x.key.Reshape({rows, n, 1}).Expand(pairs);
  const NodeExpr other = x.key.Reshape({rows, 1, n}).Expand(pairs);
  const NodeExpr is_earlier = Iota(rec, DType::kI32, pairs, 2) < Iota(rec, DType::kI32, pairs, 1);
  const NodeExpr comes_before = Where(is_earlier, !(mine < other), other < mine);
  const NodeExpr count = comes_before.Cast(DType::kI32).Sum({2});
  // Kept: computed again for each place, n^2 comparisons would be n^3.
  const NodeExpr rank = count.Reshape({rows, 1, n}).Contiguous();
  const Shape full = {rows, Dim(k), n};
  const NodeExpr is_here = rank.Expand(full) == Iota(rec, DType::kI32, full, 1);
  const NodeExpr from =
      Where(is_here, Iota(rec, DType::kI32, full, 2), 0).Sum({2}).Squeeze({2}).Contiguous();
  return {GatherAlong(x.key, 1, from), GatherAlong(x.place, 1, from)};
}

// The lanes as rows of `width` elements. What fills the last row comes after everything else.
Lanes Blocks(const Lanes& x, int64_t width) {
  const int64_t n = x.key->shape[1].value(), count = (n + width - 1) / width;
  const Shape lo_hi = {0, 0, 0, Dim(count * width - n)};
  const Shape blocks = {Dim(x.key->shape[0].value() * count), Dim(width)};
  const auto padded = [&](const NodeExpr& x) { return x.With(x.rec().Pad(x, lo_hi)); };
  const NodeExpr key = padded(x.key), inside = padded(x.key.FullInt(1));
  const NodeExpr filled = Where(inside != inside.FullInt(0), key, key.FullInt(IntMax(key->dtype)));
  return {filled.Reshape(blocks), padded(x.place).Reshape(blocks)};
}

Sorted FirstOf(const NodeExpr& x, int64_t axis, int64_t k, bool descending) {
  const NodeBuilder& rec = x.rec();
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
    const NodeExpr none(rec, rec.Full(rec.ConstInt(DType::kI32, 0), turned));
    const NodeExpr indices = none.Permute(back);
    Shape begin_end;
    for (const Dim& dim : indices->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
    return {TensorOf({rec, rec.Shrink(x, begin_end)}), TensorOf(indices)};
  }
  NodeExpr key = KeyOf(x.Permute(order).Reshape({Dim(rows), Dim(n)}));
  if (descending) key = key ^ key.FullInt(-1);
  Lanes lanes = {key.Contiguous(), Iota(rec, DType::kI32, key->shape, 1)};
  const auto best = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(k)));
  const int64_t width = std::max(2 * best, kBlockMin);
  while (lanes.key->shape[1].value() > width) {
    lanes = FirstByRank(Blocks(lanes, width), best);
    const Shape joined = {Dim(rows), Dim(lanes.key->shape[0].value() / rows * best)};
    lanes = {lanes.key.Reshape(joined).Contiguous(), lanes.place.Reshape(joined).Contiguous()};
  }
  const NodeExpr indices = FirstByRank(lanes, k).place.Reshape(turned).Permute(back);
  return {TensorOf(GatherAlong(x, place, indices)), TensorOf(indices)};
}

}  // namespace

Sorted sort(const Tensor& x, int64_t axis, bool descending, At at) {
  const NodeBuilder rec(at);
  const NodeExpr node = ExprOf(rec, x);
  return FirstOf(node, axis, rec.LengthOf(node, rec.Axis(axis, node->rank())), descending);
}

Tensor argsort(const Tensor& x, int64_t axis, bool descending, At at) {
  return sort(x, axis, descending, at).indices;
}

Sorted topk(const Tensor& x, int64_t k, int64_t axis, bool largest, At at) {
  const NodeBuilder rec(at);
  return FirstOf(ExprOf(rec, x), axis, k, largest);
}

}  // namespace outboard
