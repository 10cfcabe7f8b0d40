// Hints for sessions of several devices: where a value lies. They change no value.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/lazy/lazy_graph.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/sym_expression.h"
#include "client/tensor/error.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"

namespace outboard {

using internal::NodeBuilder;

Tensor Tensor::shard(std::optional<int64_t> axis, std::optional<int64_t> mesh_axis, At at) const {
  const NodeBuilder rec(at);
  const UOp* const x = NodeIn(rec);
  if (mesh_axis && (*mesh_axis < 0 || *mesh_axis >= limits::kMeshAxesMax))
    rec.Invalid(absl::StrCat("shard: axis ", *mesh_axis, " of a mesh is not in 0..",
                             limits::kMeshAxesMax - 1));
  int64_t dim = LayoutOf::kWhole;
  if (axis) {
    const std::vector<int64_t> dims = rec.Axes({*axis}, x->rank());
    if (!dims.empty()) dim = dims[0];  // a scalar has none to cut
  }
  if (dim >= 0 && !x->shape[dim].is_const()) {
    std::vector<std::string> names;
    for (const auto& [variable, value] : internal::VariablesIn(size(dim, at)))
      names.push_back(variable.name());
    throw Error(absl::UnimplementedError(absl::StrCat(
                    "shard: dimension ", dim, " of ", ShapeToString(x->shape), " has the VAR ",
                    absl::StrJoin(names, ", "), " and cannot be cut")),
                at);
  }
  const std::pair hint(mesh_axis.value_or(LayoutOf::kAnyAxis), dim);
  Tensor result = FromNode(rec, rec.Make(Op::kLayout, x->dtype, {x}, {hint.first, hint.second}));
  result.value_->layout = hint;
  return result;
}

Tensor& Tensor::shard_(std::optional<int64_t> axis, std::optional<int64_t> mesh_axis, At at) {
  const Tensor hinted = detach(at).shard(axis, mesh_axis, at);
  assign(Arg(hinted, at));
  value_->layout = hinted.value_->layout;
  return *this;
}

Tensor Tensor::shard_like(const Tensor& other, At at) const {
  if (other.empty() || !other.value_->layout) return *this;
  const auto [mesh_axis, dim] = *other.value_->layout;
  return shard(dim < 0 ? std::nullopt : std::optional(dim),
               mesh_axis < 0 ? std::nullopt : std::optional(mesh_axis), at);
}

}  // namespace outboard
