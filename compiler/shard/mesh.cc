#include "compiler/shard/mesh.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/divide_up.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"

namespace outboard::shard {
namespace {

// Copies the box of `count` elements between two row-major tensors, `at` in `whole` and at the
// origin of `part`.
void CopyBox(const HostTensor& from, HostTensor& to, absl::Span<const int64_t> whole_dims,
             absl::Span<const int64_t> part_dims, const PartSlice& slice, bool into_part) {
  const size_t rank = whole_dims.size();
  const int64_t width = ByteWidth(from.dtype);
  if (std::find(slice.count.begin(), slice.count.end(), 0) != slice.count.end()) return;
  const int64_t run = (rank == 0 ? 1 : slice.count[rank - 1]) * width;
  std::vector<int64_t> at(rank, 0);
  while (true) {
    int64_t in_whole = 0, in_part = 0;
    for (size_t i = 0; i < rank; ++i) {
      in_whole = in_whole * whole_dims[i] + slice.begin[i] + at[i];
      in_part = in_part * part_dims[i] + at[i];
    }
    const int64_t source = into_part ? in_whole : in_part, target = into_part ? in_part : in_whole;
    std::memcpy(to.bytes.data() + target * width, from.bytes.data() + source * width, run);
    int64_t dim = static_cast<int64_t>(rank) - 2;
    while (dim >= 0 && ++at[dim] == slice.count[dim]) at[dim--] = 0;
    if (dim < 0) return;
  }
}

// Which of the parts of `dim` is that of `rank`.
int64_t PartOf(const Mesh& mesh, const Layout& layout, int64_t dim, int64_t rank) {
  int64_t part = 0;
  for (int axis = 0; axis < mesh.axes(); ++axis)
    if (layout.at(axis) == dim) part = part * mesh.sizes[axis] + mesh.coordinate(rank, axis);
  return part;
}

}  // namespace

int64_t Mesh::ranks() const {
  int64_t ranks = 1;
  for (const int64_t size : sizes) ranks *= size;
  return ranks;
}

int64_t Mesh::stride(int axis) const {
  int64_t stride = 1;
  for (int i = axis + 1; i < axes(); ++i) stride *= sizes[i];
  return stride;
}

std::string ToString(const Mesh& mesh) {
  return mesh.sizes.empty() ? "1" : absl::StrJoin(mesh.sizes, "x");
}

absl::Status CheckMesh(const Mesh& mesh) {
  if (mesh.axes() > limits::kMeshAxesMax)
    return absl::InvalidArgumentError(absl::StrCat("a mesh of ", mesh.axes(), " axes (",
                                                   ToString(mesh), ") is over the limit of ",
                                                   limits::kMeshAxesMax));
  int64_t ranks = 1;
  for (const int64_t size : mesh.sizes) {
    if (size < 1)
      return absl::InvalidArgumentError(
          absl::StrCat("the mesh ", ToString(mesh), " has an axis of ", size, " devices"));
    if (size > limits::kRanksMax || (ranks *= size) > limits::kRanksMax)
      return absl::InvalidArgumentError(absl::StrCat(
          "the mesh ", ToString(mesh), " is over the limit of ", limits::kRanksMax, " devices"));
  }
  return absl::OkStatus();
}

bool Layout::is_whole() const {
  return std::all_of(cut.begin(), cut.end(), [](int64_t dim) { return dim == kWhole; });
}

bool operator==(const Layout& a, const Layout& b) {
  const int axes = static_cast<int>(std::max(a.cut.size(), b.cut.size()));
  for (int axis = 0; axis < axes; ++axis)
    if (a.at(axis) != b.at(axis)) return false;
  return true;
}

std::string ToString(const Layout& layout) {
  std::vector<std::string> parts;
  for (int axis = 0; axis < static_cast<int>(layout.cut.size()); ++axis)
    if (layout.at(axis) != Layout::kWhole)
      parts.push_back(absl::StrCat("dim ", layout.at(axis), " by axis ", axis));
  return parts.empty() ? "whole" : absl::StrJoin(parts, ", ");
}

absl::Status CheckLayout(const Mesh& mesh, const Layout& layout, ShapeView shape) {
  for (int axis = 0; axis < static_cast<int>(layout.cut.size()); ++axis) {
    const int64_t dim = layout.at(axis);
    if (dim == Layout::kWhole) continue;
    if (axis >= mesh.axes())
      return absl::InvalidArgumentError(
          absl::StrCat("mesh axis ", axis, " is not one of the mesh ", ToString(mesh)));
    if (dim < 0 || dim >= static_cast<int64_t>(shape.size()))
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", dim, " is not one of ", ShapeToString(shape)));
    if (!shape[dim].is_const())
      return absl::UnimplementedError(absl::StrCat("dimension ", dim, " of ", ShapeToString(shape),
                                                   " has a VAR and cannot be cut"));
  }
  return absl::OkStatus();
}

int64_t PartsOf(const Mesh& mesh, const Layout& layout, int64_t dim) {
  int64_t parts = 1;
  for (int axis = 0; axis < mesh.axes(); ++axis)
    if (layout.at(axis) == dim) parts *= mesh.sizes[axis];
  return parts;
}

std::vector<int64_t> LocalDims(const Mesh& mesh, const Layout& layout,
                               absl::Span<const int64_t> dims) {
  std::vector<int64_t> local(dims.begin(), dims.end());
  for (size_t dim = 0; dim < local.size(); ++dim)
    local[dim] = DivideUp(local[dim], PartsOf(mesh, layout, static_cast<int64_t>(dim)));
  return local;
}

Shape LocalShape(const Mesh& mesh, const Layout& layout, ShapeView shape) {
  Shape local(shape.begin(), shape.end());
  for (size_t dim = 0; dim < local.size(); ++dim)
    if (const int64_t parts = PartsOf(mesh, layout, static_cast<int64_t>(dim)); parts > 1)
      local[dim] = Dim(DivideUp(local[dim].value(), parts));
  return local;
}

PartSlice SliceOf(const Mesh& mesh, const Layout& layout, absl::Span<const int64_t> dims,
                  int64_t rank) {
  PartSlice slice;
  const std::vector<int64_t> local = LocalDims(mesh, layout, dims);
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    const int64_t part = PartOf(mesh, layout, static_cast<int64_t>(dim), rank);
    slice.begin.push_back(std::min(part * local[dim], dims[dim]));
    slice.count.push_back(std::min(local[dim], dims[dim] - slice.begin.back()));
  }
  return slice;
}

std::vector<HostTensor> CutTensor(const Mesh& mesh, const Layout& layout, const HostTensor& whole) {
  std::vector<HostTensor> parts;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    HostTensor part{whole.dtype, LocalDims(mesh, layout, whole.dims), {}};
    part.bytes.resize(part.ElementCount() * ByteWidth(whole.dtype));
    CopyBox(whole, part, whole.dims, part.dims, SliceOf(mesh, layout, whole.dims, rank), true);
    parts.push_back(std::move(part));
  }
  return parts;
}

HostTensor JoinTensor(const Mesh& mesh, const Layout& layout, absl::Span<const int64_t> dims,
                      absl::Span<const HostTensor> parts) {
  OB_CHECK(static_cast<int64_t>(parts.size()) == mesh.ranks());
  HostTensor whole{parts[0].dtype, {dims.begin(), dims.end()}, {}};
  whole.bytes.resize(whole.ElementCount() * ByteWidth(whole.dtype));
  for (int64_t rank = mesh.ranks() - 1; rank >= 0; --rank)
    CopyBox(parts[rank], whole, dims, parts[rank].dims, SliceOf(mesh, layout, dims, rank), false);
  return whole;
}

}  // namespace outboard::shard
