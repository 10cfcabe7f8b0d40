#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/ops/shape/shape.h"
#include "client/ops/window/sliding.h"
#include "compiler/ir/limits.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;

Tensor diag(const Tensor& x, At at) {
  const NodeBuilder rec(at);
  const UOp* const row = x.NodeIn(rec);
  if (row->rank() != 1)
    rec.Invalid(absl::StrCat("diag: needs one axis, not ", DimsToString(row->shape)));
  const int64_t n = rec.LengthOf(row, 0);
  // An element and n zeros, n times, less the last n zeros.
  const UOp* const apart = rec.Pad(rec.Reshape(row, {Dim(n), Dim(1)}), {0, 0, 0, Dim(n)});
  const UOp* const flat = rec.Reshape(apart, {Dim(n * (n + 1))});
  return Tensor::FromNode(rec, rec.Reshape(rec.Shrink(flat, {0, Dim(n * n)}), {Dim(n), Dim(n)}));
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t a, int64_t b, At at) {
  const NodeBuilder rec(at);
  const UOp* node = x.NodeIn(rec);
  const int rows = rec.Axis(a, node->rank()), columns = rec.Axis(b, node->rank());
  if (rows == columns) rec.Invalid(absl::StrCat("diagonal: axis ", rows, " is given twice"));
  std::vector<int64_t> order;
  for (int i = 0; i < node->rank(); ++i)
    if (i != rows && i != columns) order.push_back(i);
  order.insert(order.end(), {rows, columns});
  // Beyond this nothing changes, and nothing overflows.
  offset = std::clamp<int64_t>(offset, -limits::kDimMax, limits::kDimMax);
  const int64_t down = std::min(std::max<int64_t>(-offset, 0), rec.LengthOf(node, rows));
  const int64_t right = std::min(std::max<int64_t>(offset, 0), rec.LengthOf(node, columns));
  const int64_t n = std::min(rec.LengthOf(node, rows) - down, rec.LengthOf(node, columns) - right);
  node = rec.Permute(node, order);
  const auto last = static_cast<size_t>(node->rank()) - 1;
  Shape square;
  for (const Dim& dim : node->shape) square.insert(square.end(), {Dim(0), dim});
  square[2 * last - 2] = Dim(down);
  square[2 * last - 1] = Dim(down + n);
  square[2 * last] = Dim(right);
  square[2 * last + 1] = Dim(right + n);
  node = rec.Shrink(node, square);
  // Rows one longer than they are: what is on the diagonal comes to stand in the first column.
  Shape dims(node->shape.begin(), node->shape.end() - 2), lo_hi(2 * last, Dim(0)), first;
  Shape flat = dims, longer = dims;
  flat.emplace_back(n * n);
  lo_hi.back() = Dim(n);
  longer.insert(longer.end(), {Dim(n), Dim(n + 1)});
  node = rec.Reshape(rec.Pad(rec.Reshape(node, flat), lo_hi), longer);
  for (const Dim& dim : node->shape) first.insert(first.end(), {Dim(0), dim});
  first.back() = Dim(1);
  return Tensor::FromNode(rec, rec.Squeeze(rec.Shrink(node, first), {static_cast<int64_t>(last)}));
}

using internal::DimsToString;
using internal::NodeBuilder;

std::vector<Tensor> meshgrid(const std::vector<Tensor>& parts, std::string_view indexing, At at) {
  const NodeBuilder rec(at);
  if (indexing != "ij" && indexing != "xy")
    rec.Invalid(absl::StrCat("meshgrid: indexing is \"ij\" or \"xy\", not \"",
                             std::string(indexing), "\""));
  std::vector<const UOp*> nodes;
  Shape full(parts.size(), Dim(1));
  std::vector<size_t> axes(parts.size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  if (indexing == "xy" && parts.size() > 1) std::swap(axes[0], axes[1]);
  for (size_t i = 0; i < parts.size(); ++i) {
    nodes.push_back(parts[i].NodeIn(rec));
    if (nodes[i]->rank() > 1)
      rec.Invalid(absl::StrCat("meshgrid: ", DimsToString(nodes[i]->shape), " has several axes"));
    if (nodes[i]->rank() == 1) full[axes[i]] = nodes[i]->shape[0];
  }
  std::vector<Tensor> grids;
  for (size_t i = 0; i < parts.size(); ++i) {
    Shape ones(full.size(), Dim(1));
    ones[axes[i]] = full[axes[i]];
    grids.push_back(Tensor::FromNode(rec, rec.Expand(rec.Reshape(nodes[i], ones), full)));
  }
  return grids;
}

Tensor repeat_interleave(const Tensor& x, int64_t times, std::optional<int64_t> axis, At at) {
  const NodeBuilder rec(at);
  if (!axis) return repeat_interleave(x.flatten(), times, 0);
  const UOp* const node = x.NodeIn(rec);
  const int place = rec.Axis(*axis, node->rank());
  if (times < 0) rec.Invalid(absl::StrCat("repeat_interleave: ", times, " times"));
  Shape joined(node->shape.begin(), node->shape.end()), apart = joined;
  int64_t length;
  if (__builtin_mul_overflow(rec.LengthOf(node, place), times, &length))
    rec.Invalid(absl::StrCat("repeat_interleave: ", times, " times overflows"));
  joined[place] = Dim(length);
  apart.insert(apart.begin() + place + 1, Dim(1));
  Shape spread = apart;
  spread[place + 1] = Dim(times);
  return Tensor::FromNode(rec, rec.Reshape(rec.Expand(rec.Reshape(node, apart), spread), joined));
}

Tensor unfold(const Tensor& x, int64_t axis, int64_t size, int64_t step, At at) {
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  const int place = rec.Axis(axis, node->rank());
  const int64_t length = rec.LengthOf(node, place);
  if (size < 0 || size > length || step < 1)
    rec.Invalid(absl::StrCat("unfold: windows of ", size, " at a step of ", step,
                             " over an axis of ", length));
  const int64_t count = (length - size) / step + 1;
  std::vector<int64_t> order(node->rank() + 1);
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + place + 1);
  order.push_back(place + 1);
  if (size == 0) {
    Shape none(node->shape.begin(), node->shape.end());
    none[place] = Dim(count);
    none.emplace_back(0);
    return Tensor::FromNode(rec, rec.Full(rec.Const(node->dtype, 0), none));
  }
  const UOp* const windows = internal::Windows(rec, node, place, count, size, step, 1);
  return Tensor::FromNode(rec, rec.Permute(windows, order));
}

}  // namespace outboard
