#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/lazy/narrow.h"
#include "client/lazy/node_expr.h"
#include "client/ops/shape/shape.h"
#include "client/ops/window/sliding.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

std::vector<Tensor> meshgrid(const std::vector<Tensor>& parts, std::string_view indexing, At at) {
  const NodeBuilder rec(at);
  if (indexing != "ij" && indexing != "xy")
    rec.Invalid(absl::StrCat("meshgrid: indexing is \"ij\" or \"xy\", not \"",
                             std::string(indexing), "\""));
  std::vector<NodeExpr> nodes;
  Shape full(parts.size(), Dim(1));
  std::vector<size_t> axes(parts.size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  if (indexing == "xy" && parts.size() > 1) std::swap(axes[0], axes[1]);
  for (size_t i = 0; i < parts.size(); ++i) {
    nodes.push_back(ExprOf(rec, parts[i]));
    if (nodes[i]->rank() > 1)
      rec.Invalid(absl::StrCat("meshgrid: ", DimsToString(nodes[i]->shape), " has several axes"));
    if (nodes[i]->rank() == 1) full[axes[i]] = nodes[i]->shape[0];
  }
  std::vector<Tensor> grids;
  for (size_t i = 0; i < parts.size(); ++i) {
    Shape ones(full.size(), Dim(1));
    ones[axes[i]] = full[axes[i]];
    grids.push_back(TensorOf(nodes[i].Reshape(ones).Expand(full)));
  }
  return grids;
}

Tensor repeat_interleave(const Tensor& tensor, int64_t times, std::optional<int64_t> axis, At at) {
  const NodeBuilder rec(at);
  if (!axis) return repeat_interleave(tensor.flatten(), times, 0);
  const NodeExpr x = ExprOf(rec, tensor);
  const int place = rec.Axis(*axis, x->rank());
  if (times < 0) rec.Invalid(absl::StrCat("repeat_interleave: ", times, " times"));
  Shape joined(x->shape.begin(), x->shape.end()), apart = joined;
  joined[place] = rec.Product({joined[place], Dim(times)});
  apart.insert(apart.begin() + place + 1, Dim(1));
  Shape spread = apart;
  spread[place + 1] = Dim(times);
  return TensorOf(x.Reshape(apart).Expand(spread).Reshape(joined));
}

Tensor unfold(const Tensor& tensor, int64_t axis, int64_t size, int64_t step, At at) {
  const NodeBuilder rec(at);
  const int place = rec.Axis(axis, ExprOf(rec, tensor)->rank());
  // The axis as it is once windows have a place for all values of its variables.
  const NodeExpr x = internal::Settled(rec, [&] {
    const NodeExpr whole = ExprOf(rec, tensor);
    const SymInt length = rec.SizeOf(whole->shape[place], *rec.lazy_graph());
    if (step < 1 || !internal::NarrowToFit(rec, std::vector<internal::Ascending>{{size, length}}))
      rec.Invalid(absl::StrCat("unfold: windows of ", size, " at a step of ", step,
                               " over an axis of ", length.value()));
    return whole;
  });
  const SymInt room = rec.SizeOf(x->shape[place], *rec.lazy_graph()) - size;
  const Dim count = rec.DimOf((step == 1 ? room : room / step) + 1);
  std::vector<int64_t> order(x->rank() + 1);
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + place + 1);
  order.push_back(place + 1);
  if (size == 0) {
    Shape none(x->shape.begin(), x->shape.end());
    none[place] = count;
    none.emplace_back(0);
    return TensorOf(x.With(rec.Full(rec.Const(x->dtype, 0), none)));
  }
  const NodeExpr windows = internal::Windows(x, place, count, size, step, 1);
  return TensorOf(windows.Permute(order));
}

}  // namespace outboard
