#include "client/ops/shape/diagonals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
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

}  // namespace outboard
