// Shapes: what moves elements and computes nothing.
#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/lazy/narrow.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/node_expr.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/index/spans.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/limits.h"

namespace outboard {

using internal::DimsToString;
using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;
using internal::ToShape;
using internal::True;

namespace {

// What a dimension that is left open comes to: all of `from` that is not in `known`.
Dim LeftOver(const NodeBuilder& rec, ShapeView from, Shape known) {
  Shape left(from.begin(), from.end());
  for (Dim& dim : known) {  // what is there as it is needs no number
    if (dim.is_const()) continue;
    const auto same = std::find(left.begin(), left.end(), dim);
    if (same != left.end()) dim = *same = Dim(1);
  }
  const int64_t of_known = rec.CountOf(known);
  if (of_known == 1) return rec.Product(left);
  const auto symbolic = std::stable_partition(left.begin(), left.end(),
                                              [](const Dim& dim) { return dim.is_const(); });
  Shape rest(symbolic, left.end());
  left.erase(symbolic, left.end());
  const int64_t count = rec.CountOf(left);
  if (of_known <= 0 || count % of_known != 0)
    rec.Invalid(absl::StrCat("reshape: ", DimsToString(from), " has ",
                             rest.empty() ? "" : "a multiple of ", count,
                             " elements, which is no multiple of ", of_known));
  rest.emplace_back(count / of_known);
  return rec.Product(rest);
}

}  // namespace

Tensor Tensor::reshape(const SymShape& sizes, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  Shape shape = rec.ShapeOf(sizes), known;
  int64_t count = 1;
  for (const Dim& dim : shape) {
    if (dim == Dim(-1)) continue;
    known.push_back(dim);
    if (__builtin_mul_overflow(count, dim.max(), &count))
      rec.Invalid("reshape: the sizes overflow");
  }
  if (shape.size() > known.size() + 1) rec.Invalid("reshape: more than one dimension is -1");
  if (shape.size() > known.size())
    *std::find(shape.begin(), shape.end(), Dim(-1)) = LeftOver(rec, x->shape, known);
  return TensorOf(x.Reshape(shape));
}

Tensor Tensor::flatten(int64_t first, int64_t last, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  if (x->rank() == 0) return TensorOf(x.Reshape({Dim(1)}));
  const int begin = rec.Axis(first, x->rank()), end = rec.Axis(last, x->rank());
  if (begin > end) rec.Invalid("flatten: the first axis comes after the last");
  Shape dims(x->shape.begin(), x->shape.begin() + begin);
  const ShapeView joined = x->shape.subspan(begin, end - begin + 1);
  dims.push_back(rec.Product(Shape(joined.begin(), joined.end())));
  dims.insert(dims.end(), x->shape.begin() + end + 1, x->shape.end());
  return TensorOf(x.Reshape(dims));
}

Tensor Tensor::unsqueeze(int64_t axis, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  Shape dims(x->shape.begin(), x->shape.end());
  dims.insert(dims.begin() + rec.Axis(axis, x->rank() + 1), Dim(1));
  return TensorOf(x.Reshape(dims));
}

Tensor Tensor::squeeze(At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  std::vector<int64_t> axes;
  for (int i = 0; i < x->rank(); ++i)
    if (x->shape[i] == Dim(1)) axes.push_back(i);
  return TensorOf(x.Squeeze(axes));
}

Tensor Tensor::squeeze(int64_t axis, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  const int place = rec.Axis(axis, x->rank());
  return TensorOf(x->shape[place] == Dim(1) ? x.Squeeze({place}) : x);
}

Tensor Tensor::expand(const SymShape& sizes, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  Shape shape = rec.ShapeOf(sizes);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != Dim(-1)) continue;
    if (i + x->shape.size() < shape.size()) rec.Invalid("expand: a new dimension cannot be -1");
    shape[i] = x->shape[i + x->shape.size() - shape.size()];
  }
  return TensorOf(x.Broadcast(shape));
}

Tensor Tensor::permute(const Dims& axes, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  std::vector<int64_t> order;
  for (const int64_t axis : axes) order.push_back(rec.Axis(axis, x->rank()));
  return TensorOf(x.Permute(order));
}

Tensor Tensor::transpose(int64_t a, int64_t b, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  std::vector<int64_t> order(x->rank());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[rec.Axis(a, x->rank())], order[rec.Axis(b, x->rank())]);
  return TensorOf(x.Permute(order));
}

Tensor Tensor::flip(const Axes& axes, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  return TensorOf(axes.empty() ? x : x.Flip(rec.Axes(axes, x->rank())));
}

Tensor Tensor::pad(const SymIntPairs& sides, double value, At at) const {
  const NodeBuilder rec(at);
  std::vector<internal::Ascending> wanted;
  for (const auto& [low, high] : sides)
    for (const SymInt& side : {low, high})
      if (!side.is_number()) wanted.push_back({0, side});
  internal::NarrowToFit(rec, wanted);
  const NodeExpr x = ExprOf(rec, *this);
  if (sides.size() != x->shape.size())
    rec.Invalid(absl::StrCat("pad: ", sides.size(), " pairs for a tensor of shape ",
                             DimsToString(x->shape)));
  Shape lo_hi;
  for (const auto& [low, high] : sides) {
    lo_hi.push_back(rec.DimOf(low));
    lo_hi.push_back(rec.DimOf(high));
  }
  const NodeExpr padded = x.Pad(lo_hi);
  if (value == 0) return TensorOf(padded);
  // Not by adding: -0.0, infinities and NaN must stay what they are.
  const NodeExpr is_inside = True(rec, x->shape).Pad(lo_hi);
  return TensorOf(Where(is_inside, padded, value));
}

Tensor Tensor::shrink(const SymIntPairs& ranges, At at) const {
  const NodeBuilder rec(at);
  const Shape begin_end = internal::Settled(rec, [&] {
    const NodeExpr x = ExprOf(rec, *this);
    if (ranges.size() != x->shape.size())
      rec.Invalid(absl::StrCat("shrink: ", ranges.size(), " ranges for a tensor of shape ",
                               DimsToString(x->shape)));
    Shape places;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const internal::Span span =
          internal::SpanOf(rec, x->shape[i], ranges[i].first, ranges[i].second);
      places.insert(places.end(), {span.low, span.high});
    }
    return places;
  });
  return TensorOf(ExprOf(rec, *this).Shrink(begin_end));
}

Tensor Tensor::slice(int64_t axis, const SymInt& begin, const SymInt& end, At at) const {
  const NodeBuilder rec(at);
  const int place = rec.Axis(axis, rank());
  const internal::Span span = internal::Settled(
      rec, [&] { return internal::SpanOf(rec, ExprOf(rec, *this)->shape[place], begin, end); });
  return TensorOf(ExprOf(rec, *this).Shrink(place, span.low, span.high));
}

std::vector<Tensor> Tensor::split(int64_t size, int64_t axis, At at) const {
  const CallSite site(at);
  if (size < 1) ThrowInvalid(absl::StrCat("split: parts of ", size), Mistake::kCheck);
  const NodeBuilder rec;
  const int place = rec.Axis(axis, rank());
  // The number of parts belongs to the program: a variable has only values that give as many.
  int64_t count = 0;
  const SymInt length = internal::Settled(rec, [&] {
    const SymInt n = rec.SizeOf(ExprOf(rec, *this)->shape[place], *rec.lazy_graph());
    count = n.value() / size + (n.value() % size != 0);
    if (!n.is_number() && count > 0)
      internal::NarrowToFit(rec, std::vector<internal::Ascending>{{(count - 1) * size + 1, n},
                                                                  {n, count * size}});
    return n;
  });
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < count; ++i)
    parts.push_back(slice(place, i * size, i + 1 < count ? SymInt((i + 1) * size) : length));
  return parts;
}

std::vector<Tensor> Tensor::split(const Dims& sizes, int64_t axis, At at) const {
  const CallSite site(at);
  const int64_t length = shape(axis);
  int64_t left = length;
  for (const int64_t size : sizes) {
    if (size < 0 || size > left)
      ThrowInvalid(
          absl::StrCat("split: a part of ", size, " where ", left, " are left of ", length));
    left -= size;
  }
  if (left != 0)
    ThrowInvalid(absl::StrCat("split: the parts leave ", left, " of ", length, " over"),
                 Mistake::kCheck);
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(slice(axis, begin, begin + size));
    begin += size;
  }
  return parts;
}

std::vector<Tensor> Tensor::chunk(int64_t count, int64_t axis, At at) const {
  const CallSite site(at);
  if (count < 1) ThrowInvalid(absl::StrCat("chunk: ", count, " parts"), Mistake::kCheck);
  const int64_t length = shape(axis);
  return split(std::max<int64_t>(length / count + (length % count != 0), 1), axis);
}

Tensor Tensor::roll(const Axes& shifts, const Axes& axes, At at) const {
  const CallSite site(at);
  const NodeBuilder rec;
  if (axes.empty() && shifts.size() == 1) return flatten().roll(shifts, 0).reshape(shape());
  if (shifts.size() != axes.size())
    ThrowInvalid(absl::StrCat("roll: ", shifts.size(), " shifts for ", axes.size(), " axes"));
  Tensor y = *this;
  for (size_t i = 0; i < axes.size(); ++i) {
    const SymInt length = y.size(axes[i]);
    const int64_t n = length.value();
    const int64_t turn = n == 0 ? 0 : shifts[i] % n;
    // More than once around: how far it goes is of this length only.
    if (turn != shifts[i] && !length.is_number())
      internal::NarrowToFit(rec, std::vector<internal::Ascending>{{length, n}, {n, length}});
    if (turn == 0) continue;
    // So many come to the front.
    const SymInt end = turn > 0 ? SymInt(turn) : length + turn;
    y = cat({y.slice(axes[i], length - end, length), y.slice(axes[i], 0, length - end)}, axes[i]);
  }
  return y;
}

Tensor Tensor::movedim(int64_t from, int64_t to, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  std::vector<int64_t> order(x->rank());
  std::iota(order.begin(), order.end(), 0);
  const int source = rec.Axis(from, x->rank()), target = rec.Axis(to, x->rank());
  order.erase(order.begin() + source);
  order.insert(order.begin() + target, source);
  return TensorOf(x.Permute(order));
}

namespace {

// Where column - row >= diagonal (`upper`) or <= diagonal, x; else zero.
NodeExpr Triangle(const NodeExpr& x, const SymInt& diagonal, bool upper) {
  if (x->rank() < 2)
    ThrowInvalid(absl::StrCat(upper ? "triu" : "tril", ": ", DimsToString(x->shape),
                              " has no last two axes"),
                 Mistake::kIndex);
  const NodeExpr row = Iota(x.rec(), DType::kI64, x->shape, x->rank() - 2);
  const NodeExpr column = Iota(x.rec(), DType::kI64, x->shape, x->rank() - 1);
  const auto edge = [&] {
    if (!diagonal.is_number())
      return row + x.With(x.rec().Full(x.rec().DimOf(diagonal).expression(), x->shape));
    // Beyond this nothing changes, and nothing overflows.
    return row + static_cast<double>(
                     std::clamp<int64_t>(diagonal.value(), -limits::kDimMax, limits::kDimMax));
  }();
  return Where(upper ? column < edge : column > edge, 0, x);
}

}  // namespace

Tensor Tensor::triu(const SymInt& diagonal, At at) const {
  const NodeBuilder rec(at);
  return TensorOf(Triangle(ExprOf(rec, *this), diagonal, true));
}

Tensor Tensor::tril(const SymInt& diagonal, At at) const {
  const NodeBuilder rec(at);
  return TensorOf(Triangle(ExprOf(rec, *this), diagonal, false));
}

Tensor Tensor::cat(const std::vector<Tensor>& parts, int64_t axis, At at) {
  const NodeBuilder rec(at);
  if (parts.empty()) rec.Invalid("cat: no tensors");
  std::vector<const UOp*> nodes;
  for (const Tensor& part : parts) nodes.push_back(part.NodeIn(rec));
  const ShapeView first = nodes[0]->shape;
  const int place = rec.Axis(axis, nodes[0]->rank());
  DType dtype = nodes[0]->dtype;
  Shape shape(first.begin(), first.end());
  std::vector<Dim> ends;  // of the parts, along the axis
  for (const UOp* node : nodes) {
    dtype = Promote(dtype, node->dtype);
    if (node->shape.size() != first.size())
      rec.Invalid(absl::StrCat("cat: the shapes ", DimsToString(first), " and ",
                               DimsToString(node->shape), " differ in rank"),
                  Mistake::kCheck);
    ends.push_back(rec.Sum(ends.empty() ? Dim(0) : ends.back(), node->shape[place]));
    shape[place] = node->shape[place];
    if (node->shape != ShapeView(shape))
      rec.Invalid(absl::StrCat("cat: the shapes ", DimsToString(first), " and ",
                               DimsToString(node->shape), " differ beside axis ", place),
                  Mistake::kCheck);
  }
  shape[place] = ends.back();
  // Each part padded to the whole; a comparison with the place chooses. From the last to the first.
  std::optional<NodeExpr> whole;
  Dim after(0);  // elements that follow the part
  for (size_t i = nodes.size(); i-- > 0;) {
    const Dim begin = i == 0 ? Dim(0) : ends[i - 1];
    NodeExpr padded = NodeExpr(rec, nodes[i]).Cast(dtype).Pad(place, begin, after);
    // The same length, written as another sum of variables.
    if (padded->shape != ShapeView(shape)) padded = padded.Shrink(place, Dim(0), shape[place]);
    const auto is_before = [&] {
      const NodeExpr at = Iota(rec, DType::kI32, shape, place);
      if (ends[i].is_const()) return at < static_cast<double>(ends[i].value());
      return at < at.With(rec.Full(rec.Cast(ends[i].expression(), DType::kI32), shape));
    };
    whole = whole ? Where(is_before(), padded, *whole) : padded;
    after = rec.Sum(after, nodes[i]->shape[place]);
  }
  return TensorOf(*whole);
}

Tensor Tensor::stack(const std::vector<Tensor>& parts, int64_t axis, At at) {
  const CallSite site(at);
  std::vector<Tensor> raised;
  for (const Tensor& part : parts) raised.push_back(part.unsqueeze(axis));
  return cat(raised, axis);
}

Tensor Tensor::repeat(const Dims& times, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  if (times.size() < x->shape.size())
    rec.Invalid(absl::StrCat("repeat: ", times.size(), " numbers for a tensor of shape ",
                             DimsToString(x->shape)));
  Shape ones(times.size() - x->shape.size(), Dim(1));
  ones.insert(ones.end(), x->shape.begin(), x->shape.end());
  Shape apart, spread, joined;  // [1, d0, 1, d1 ...], [t0, d0, t1, d1 ...], [t0 * d0, t1 * d1 ...]
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 0) rec.Invalid(absl::StrCat("repeat: ", times[i], " times"));
    apart.insert(apart.end(), {Dim(1), ones[i]});
    spread.insert(spread.end(), {Dim(times[i]), ones[i]});
    joined.push_back(rec.Product({ones[i], Dim(times[i])}));
  }
  return TensorOf(x.Reshape(apart).Expand(spread).Reshape(joined));
}

}  // namespace outboard
