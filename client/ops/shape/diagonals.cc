#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_expr.h"
#include "client/ops/shape/shape.h"
#include "compiler/ir/limits.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

Tensor diag(const Tensor& tensor, At at) {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, tensor);
  if (x->rank() != 1)
    rec.Invalid(absl::StrCat("diag: needs one axis, not ", DimsToString(x->shape)));
  const Dim n(x.Length(0)), square(n.value() * n.value());
  // An element and n zeros, n times, less the last n zeros.
  const NodeExpr apart = x.Reshape({n, Dim(1)}).Pad(1, Dim(0), n);
  const NodeExpr flat = apart.Reshape({Dim(n.value() * (n.value() + 1))});
  return TensorOf(flat.Shrink(0, Dim(0), square).Reshape({n, n}));
}

Tensor diagonal(const Tensor& tensor, int64_t offset, int64_t a, int64_t b, At at) {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, tensor);
  const int rows = rec.Axis(a, x->rank()), columns = rec.Axis(b, x->rank());
  if (rows == columns) rec.Invalid(absl::StrCat("diagonal: axis ", rows, " is given twice"));
  std::vector<int64_t> order;
  for (int i = 0; i < x->rank(); ++i)
    if (i != rows && i != columns) order.push_back(i);
  order.insert(order.end(), {rows, columns});
  // Beyond this nothing changes, and nothing overflows.
  offset = std::clamp<int64_t>(offset, -limits::kDimMax, limits::kDimMax);
  const int64_t down = std::min(std::max<int64_t>(-offset, 0), x.Length(rows));
  const int64_t right = std::min(std::max<int64_t>(offset, 0), x.Length(columns));
  const int64_t n = std::min(x.Length(rows) - down, x.Length(columns) - right);
  const NodeExpr turned = x.Permute(order);
  const int64_t last = x->rank() - 1;
  Shape square;
  for (const Dim& dim : turned->shape) square.insert(square.end(), {Dim(0), dim});
  square.resize(2 * last - 2);
  square.insert(square.end(), {Dim(down), Dim(down + n), Dim(right), Dim(right + n)});
  // Rows one longer than they are: what is on the diagonal comes to stand in the first column.
  Shape flat(turned->shape.begin(), turned->shape.end() - 2), longer = flat;
  flat.emplace_back(n * n);
  longer.insert(longer.end(), {Dim(n), Dim(n + 1)});
  return TensorOf(turned.Shrink(square)
                      .Reshape(flat)
                      .Pad(last - 1, Dim(0), Dim(n))
                      .Reshape(longer)
                      .Shrink(last, Dim(0), Dim(1))
                      .Squeeze({last}));
}

}  // namespace outboard
