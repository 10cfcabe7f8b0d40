#include "compiler/shard/sharding.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace outboard::shard {
namespace {

std::string AxesToString(AxisSet axes) {
  std::vector<int> list;
  for (int axis = 0; axis < 8; ++axis)
    if (axes >> axis & 1) list.push_back(axis);
  return absl::StrCat(list.size() > 1 ? "axes " : "axis ", absl::StrJoin(list, ","));
}

}  // namespace

AxisSet Sharding::cut_axes() const {
  AxisSet axes = 0;
  for (const DimCut& cut : dims) axes |= cut.axes;
  return axes;
}

int64_t PartsOf(const Mesh& mesh, AxisSet axes) {
  int64_t parts = 1;
  for (int axis = 0; axis < mesh.axes(); ++axis)
    if (axes >> axis & 1) parts *= mesh.sizes[axis];
  return parts;
}

AxisSet AllAxes(const Mesh& mesh) {
  AxisSet axes = 0;
  for (int axis = 0; axis < mesh.axes(); ++axis)
    if (mesh.sizes[axis] > 1) axes |= 1 << axis;
  return axes;
}

bool IsAlong(const Mesh& mesh, AxisSet axes, int64_t count, int64_t stride) {
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const int64_t of_axis = mesh.stride(axis);
    const bool differs = mesh.sizes[axis] > 1 && of_axis < count * stride &&
                         of_axis * mesh.sizes[axis] > stride;
    if (differs && (axes >> axis & 1) == 0) return false;
  }
  return true;
}

Sharding WholeSharding(int rank) {
  Sharding p;
  p.dims.resize(rank);
  return p;
}

Sharding Settled(Sharding p) {
  p.partial = 0;
  return p;
}

Sharding CutSharding(const Mesh& mesh, ShapeView shape, int64_t dim, AxisSet axes) {
  Sharding p = WholeSharding(static_cast<int>(shape.size()));
  const int64_t parts = PartsOf(mesh, axes);
  if (parts > 1 && shape[dim] != Dim(0))
    p.dims[dim] = {axes, (shape[dim].value() + parts - 1) / parts};
  return p;
}

Sharding ShardingOf(const Mesh& mesh, const Layout& layout, ShapeView shape) {
  Sharding p = WholeSharding(static_cast<int>(shape.size()));
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    AxisSet axes = 0;
    for (int axis = 0; axis < mesh.axes(); ++axis)
      if (layout.at(axis) == static_cast<int64_t>(dim) && mesh.sizes[axis] > 1) axes |= 1 << axis;
    if (axes != 0)
      p.dims[dim] = CutSharding(mesh, shape, static_cast<int64_t>(dim), axes).dims[dim];
  }
  return p;
}

std::optional<Layout> LayoutOfSharding(const Mesh& mesh, const Sharding& p, ShapeView shape) {
  if (p.partial != 0) return std::nullopt;
  Layout layout;
  layout.cut.assign(mesh.axes(), Layout::kWhole);
  for (size_t dim = 0; dim < p.dims.size(); ++dim)
    for (int axis = 0; axis < mesh.axes(); ++axis)
      if (p.dims[dim].axes >> axis & 1) layout.cut[axis] = static_cast<int64_t>(dim);
  if (ShardingOf(mesh, layout, shape) == p) return layout;
  return std::nullopt;
}

Shape LocalShape(const Sharding& p, ShapeView shape) {
  Shape local(shape.begin(), shape.end());
  for (size_t dim = 0; dim < local.size(); ++dim)
    if (p.dims[dim].axes != 0) local[dim] = Dim(p.dims[dim].chunk);
  return local;
}

double LocalBytes(const Sharding& p, const UOp* node) {
  double bytes = ByteWidth(node->dtype);
  for (int dim = 0; dim < node->rank(); ++dim)
    bytes *=
        static_cast<double>(p.dims[dim].axes != 0 ? p.dims[dim].chunk : node->shape[dim].max());
  return bytes;
}

double LeastLocalBytes(const Sharding& p, const UOp* node) {
  double bytes = ByteWidth(node->dtype);
  for (int dim = 0; dim < node->rank(); ++dim)
    bytes *=
        static_cast<double>(p.dims[dim].axes != 0 ? p.dims[dim].chunk : node->shape[dim].min());
  return bytes;
}

std::string ToString(const Sharding& p) {
  std::vector<std::string> parts;
  for (size_t dim = 0; dim < p.dims.size(); ++dim)
    if (p.dims[dim].axes != 0)
      parts.push_back(absl::StrCat("dim ", dim, " by ", AxesToString(p.dims[dim].axes)));
  if (p.partial != 0) parts.push_back(absl::StrCat("sum over ", AxesToString(p.partial)));
  return parts.empty() ? "whole" : absl::StrJoin(parts, "; ");
}

}  // namespace outboard::shard
