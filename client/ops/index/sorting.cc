// Sorting without a branch and without a scatter. Elements become integer keys whose order is the
// one that is wanted; keys are ranked by counting, and the values are gathered at the end, so that
// their gradient is that of a gather.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lazy/narrow.h"
#include "client/lazy/node_expr.h"
#include "client/ops/index/index.h"
#include "client/ops/window/sliding.h"

namespace outboard {

using internal::GatherAlong;
using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

// topk: blocks shorter than this are not worth a round of their own.
constexpr int64_t kBlockMin = 64;
// The longest row whose elements are all compared with each other.
constexpr int64_t kRankedMax = 4096;

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

// The elements of lanes as one integer or two, in the order of key, then place.
using Words = std::vector<NodeExpr>;

// a < b, word by word; words of equal elements are equal.
NodeExpr IsLess(const Words& a, const Words& b) {
  if (a.size() == 1) return a[0] < b[0];
  return Where(a[0] == b[0], a[1] < b[1], a[0] < b[0]);
}

// Element i changes places with its partner where they are out of order. In each run of 2 * half
// elements the partner of i is i + half, and of i + half it is i; `mirrored`: the one as far from
// the run's end as i is from its beginning. Along axis 1 of [outer, n] or, `turned`, axis 0 of
// [n, inner].
Words Exchange(const Words& x, int64_t half, bool mirrored, bool turned) {
  const Shape shape(x[0]->shape.begin(), x[0]->shape.end());
  const int64_t n = shape[turned ? 0 : 1].value();
  const Shape runs = turned ? Shape{Dim(n / (2 * half)), Dim(2), Dim(half), shape[1]}
                            : Shape{Dim(shape[0].value() * n / (2 * half)), Dim(2), Dim(half)};
  Words mine, partner;
  for (const NodeExpr& word : x) {
    mine.push_back(word.Reshape(runs));
    partner.push_back(
        mine.back().Flip(mirrored ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1}));
  }
  const NodeExpr is_first = Iota(x[0].rec(), DType::kI32, runs, 1) == 0;
  const NodeExpr stays = IsLess(mine, partner) == is_first;
  Words out;
  for (size_t i = 0; i < x.size(); ++i)
    out.push_back(Where(stays, mine[i], partner[i]).Reshape(shape));
  return out;
}

Words Stored(Words x) {
  for (NodeExpr& word : x) word = word.Contiguous();
  return x;
}

// The exchanges over the distances half, half / 2 ... last. Two at a time: what the first one of a
// pair yields is computed again, which costs less than storing it.
Words Exchanges(Words x, int64_t half, int64_t last, bool mirrored, bool turned) {
  bool pending = false;
  for (; half >= last; half /= 2) {
    x = Exchange(x, half, mirrored, turned);
    mirrored = false;
    if (pending) x = Stored(x);
    pending = !pending;
  }
  return pending ? Stored(x) : x;
}

// Rows of a power of two of elements, sorted by a network of exchanges (bitonic sort: Batcher,
// "Sorting networks and their applications", 1968, in the form whose exchanges all go one way).
// Exchanges over short distances are made with the row as a matrix of kColumns columns, turned, so
// that what is exchanged lies far apart in memory.
Words SortedByExchanges(Words x) {
  constexpr int64_t kColumns = 64;
  const int64_t rows = x[0]->shape[0].value(), n = x[0]->shape[1].value();
  const int64_t columns = std::min(n, kColumns);
  const Shape as_matrix = {Dim(rows * n / columns), Dim(columns)};
  const auto turn = [&] {
    for (NodeExpr& word : x) word = word.Reshape(as_matrix).Permute({1, 0}).Contiguous();
  };
  const auto turn_back = [&] {
    for (NodeExpr& word : x) word = word.Permute({1, 0}).Contiguous().Reshape({Dim(rows), Dim(n)});
  };
  turn();
  for (int64_t half = 1; half < columns; half *= 2) x = Exchanges(x, half, 1, true, true);
  turn_back();
  for (int64_t half = columns; half < n; half *= 2) {
    x = Exchanges(x, half, columns, true, false);
    turn();
    x = Exchanges(x, columns / 2, 1, false, true);
    turn_back();
  }
  return x;
}

// The first k of each row, for rows that are too long to compare each element with every other one.
Lanes SortedLong(const Lanes& x, int64_t k) {
  const int64_t n = x.key->shape[1].value();
  const auto width = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  const Shape lo_hi = {0, 0, 0, Dim(width - n)},
              begin_end = {Dim(0), x.key->shape[0], Dim(0), Dim(k)};
  // What fills a row comes after everything else.
  const auto filled = [&](const NodeExpr& word) {
    const auto padded = [&](const NodeExpr& x) { return x.With(x.rec().Pad(x, lo_hi)); };
    const NodeExpr inside = padded(word.FullInt(1)), value = padded(word);
    return Where(inside != inside.FullInt(0), value, value.FullInt(IntMax(value->dtype)))
        .Contiguous();
  };
  const auto cut = [&](const NodeExpr& word) {
    return word.With(word.rec().Shrink(word, begin_end));
  };
  if (x.key->dtype == DType::kI64) {
    const Words sorted = SortedByExchanges({filled(x.key), filled(x.place)});
    return {cut(sorted[0]), cut(sorted[1])};
  }
  // Both in one: the place in the low half.
  const NodeExpr high = x.key.Cast(DType::kI64);
  const NodeExpr both = (high << high.FullInt(32)) + x.place.Cast(DType::kI64);
  const NodeExpr sorted = cut(SortedByExchanges({filled(both)})[0]);
  return {(sorted >> sorted.FullInt(32)).Cast(DType::kI32), sorted.Cast(DType::kI32)};
}

// The first k of `axis`, values and indices. `counted` of its elements are there; the others come
// after them.
std::pair<NodeExpr, NodeExpr> FirstOf(const NodeExpr& x, int place, int64_t k, bool descending,
                                      const Dim& counted) {
  const NodeBuilder& rec = x.rec();
  const int64_t n = rec.LengthOf(x, place);
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
    return {{rec, rec.Shrink(x, begin_end)}, indices};
  }
  NodeExpr key = KeyOf(x.Permute(order).Reshape({Dim(rows), Dim(n)}));
  if (descending) key = key ^ key.FullInt(-1);
  if (!counted.is_const()) {
    const NodeExpr end(rec, rec.Full(rec.Cast(counted.expression(), DType::kI32), key->shape));
    key = Where(Iota(rec, DType::kI32, key->shape, 1) < end, key, key.FullInt(IntMax(key->dtype)));
  }
  Lanes lanes = {key.Contiguous(), Iota(rec, DType::kI32, key->shape, 1)};
  const auto best = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(k)));
  const int64_t width = std::max(2 * best, kBlockMin);
  while (lanes.key->shape[1].value() > width && width <= kRankedMax) {
    lanes = FirstByRank(Blocks(lanes, width), best);
    const Shape joined = {Dim(rows), Dim(lanes.key->shape[0].value() / rows * best)};
    lanes = {lanes.key.Reshape(joined).Contiguous(), lanes.place.Reshape(joined).Contiguous()};
  }
  lanes = lanes.key->shape[1].value() > kRankedMax ? SortedLong(lanes, k) : FirstByRank(lanes, k);
  const NodeExpr indices = lanes.place.Reshape(turned).Permute(back);
  return {GatherAlong(x, place, indices), indices};
}

// The first k, or all. Axes whose length is of a variable have their largest lengths meanwhile.
Sorted FirstOf(const Tensor& tensor, int64_t axis, std::optional<int64_t> k, bool descending,
               const NodeBuilder& rec) {
  const int place = rec.Axis(axis, tensor.rank());
  if (k) {
    const SymInt length = rec.SizeOf(ExprOf(rec, tensor)->shape[place], *rec.lazy_graph());
    if (!internal::NarrowToFit(rec, std::vector<internal::Ascending>{{*k, length}}))
      rec.Invalid(absl::StrCat("topk: ", *k, " of an axis of ", length.value()));
  }
  const NodeExpr x = ExprOf(rec, tensor);
  std::vector<int64_t> all(x->rank());
  std::iota(all.begin(), all.end(), 0);
  const Dim& length = x->shape[place];
  const auto [values, indices] =
      FirstOf(internal::PaddedToMost(x, all), place, k.value_or(length.max()), descending, length);
  Shape begin_end;
  for (const Dim& dim : x->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
  if (k) begin_end[2 * place + 1] = Dim(*k);
  return {TensorOf(values.Shrink(begin_end)), TensorOf(indices.Shrink(begin_end))};
}

}  // namespace

Sorted sort(const Tensor& x, int64_t axis, bool descending, At at) {
  const NodeBuilder rec(at);
  return FirstOf(x, axis, {}, descending, rec);
}

Tensor argsort(const Tensor& x, int64_t axis, bool descending, At at) {
  return sort(x, axis, descending, at).indices;
}

Sorted topk(const Tensor& x, int64_t k, int64_t axis, bool largest, At at) {
  const NodeBuilder rec(at);
  return FirstOf(x, axis, k, largest, rec);
}

}  // namespace outboard
