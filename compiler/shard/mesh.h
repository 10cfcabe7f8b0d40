// A mesh of devices, and how one value lies on it.
//
// A mesh is a list of axis sizes; (2, 3) has 6 ranks. Ranks are numbered with the last axis
// fastest. Mesh axis i has size(i) coordinates and the stride of the product of the later sizes;
// the coordinate of a rank there is (rank / stride) % size.
//
// A dimension may be cut by several mesh axes, the first of which is the slowest: on a mesh of (2,
// 3) rows cut by both lie in the order of the ranks. A cut dimension is stored padded: each rank
// has ceil(length / parts) elements of it, and what is past the length has no meaning. All ranks
// therefore store equal shapes. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard::shard {

// The axis sizes of a group of devices. An empty list is one device.
struct Mesh {
  std::vector<int64_t> sizes;

  int axes() const { return static_cast<int>(sizes.size()); }
  int64_t ranks() const;
  int64_t stride(int axis) const;
  int64_t coordinate(int64_t rank, int axis) const { return rank / stride(axis) % sizes[axis]; }
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// Returns "2x3".
std::string ToString(const Mesh& mesh);

// Checks the mesh itself: 1 to limits::kMeshAxesMax axes, each of at least one device, at most
// limits::kRanksMax ranks together. Errors: INVALID_ARGUMENT: the numbers, the limit.
absl::Status CheckMesh(const Mesh& mesh);

// How a stored value lies on a mesh: for each mesh axis the dimension that it cuts, or kWhole. A
// list that is shorter than the mesh's has kWhole for the rest, so the default is whole everywhere.
struct Layout {
  static constexpr int64_t kWhole = -1;
  std::vector<int64_t> cut;

  int64_t at(int axis) const { return axis < static_cast<int>(cut.size()) ? cut[axis] : kWhole; }
  bool is_whole() const;
  friend bool operator==(const Layout& a, const Layout& b);
  template <typename H>
  friend H AbslHashValue(H h, const Layout& layout) {
    size_t used = layout.cut.size();
    while (used > 0 && layout.cut[used - 1] == kWhole) --used;
    for (size_t i = 0; i < used; ++i) h = H::combine(std::move(h), layout.cut[i]);
    return H::combine(std::move(h), used);
  }
};

// Returns "whole", or for each mesh axis that cuts "dim 0 by axis 1".
std::string ToString(const Layout& layout);

// Checks that a value of `shape` can lie so on `mesh`.
// Errors: INVALID_ARGUMENT    a mesh axis or dimension that does not exist: the numbers
//         UNIMPLEMENTED       a dimension with a VAR is cut: the dimension, the VAR
absl::Status CheckLayout(const Mesh& mesh, const Layout& layout, ShapeView shape);

// The number of parts that `dim` is cut into.
int64_t PartsOf(const Mesh& mesh, const Layout& layout, int64_t dim);

// The dims that each rank stores of a value of `dims`: what the executor allocates and the gateway
// counts. Requires CheckLayout.
std::vector<int64_t> LocalDims(const Mesh& mesh, const Layout& layout,
                               absl::Span<const int64_t> dims);
Shape LocalShape(const Mesh& mesh, const Layout& layout, ShapeView shape);

// The elements that a rank stores, as runs of a value that is stored whole and row-major: what a
// worker copies out of a blob. Requires CheckLayout.
struct PartSlice {
  std::vector<int64_t> begin;  // of each dimension, in the whole value
  std::vector<int64_t> count;  // elements that exist; the rest of LocalDims is padding
};
PartSlice SliceOf(const Mesh& mesh, const Layout& layout, absl::Span<const int64_t> dims,
                  int64_t rank);

// Cuts a whole tensor as `layout` says: the part of each rank, padding is zeros; and the way back,
// which reads each element from the first rank that has it. For tests and for the gateway's values.
std::vector<HostTensor> CutTensor(const Mesh& mesh, const Layout& layout, const HostTensor& whole);
HostTensor JoinTensor(const Mesh& mesh, const Layout& layout, absl::Span<const int64_t> dims,
                      absl::Span<const HostTensor> parts);

}  // namespace outboard::shard
