// How a value inside a sharded graph lies on the mesh: a Layout with what a graph alone can have, a
// partial sum and parts of any length.
//
// Each mesh axis does one of three things to a value: it cuts one dimension, it holds partial sums
// (the value is the sum over the axis), or nothing (every device has the same). Sets of mesh axes
// are bit masks: bit i is axis i. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/mesh.h"

namespace outboard::shard {

using AxisSet = uint8_t;  // limits::kMeshAxesMax bits

// How one dimension is cut: place p of the axes together has the elements [p * chunk, (p + 1) *
// chunk), as far as they exist. Without axes it is whole, and chunk is 0.
// In few bytes: of a large graph there are tens of millions.
struct DimCut {
  DimCut() = default;
  DimCut(int64_t by, int64_t each) : axes(by), chunk(each) {}

  int64_t axes : 8 = 0;
  int64_t chunk : 56 = 0;
  friend bool operator==(const DimCut&, const DimCut&) = default;
};

struct Sharding {
  // One for each dimension of the value. In place for most: shardings are copied all the time.
  absl::InlinedVector<DimCut, 5> dims;
  AxisSet partial = 0;       // axes over which the value is still to be added
  // Axes that cut a value because it is stored so, not to share work: another cut goes before
  // these. No part of what a sharding is, so not compared.
  AxisSet soft = 0;

  AxisSet cut_axes() const;
  AxisSet used() const { return cut_axes() | partial; }
  bool is_whole() const { return used() == 0; }
  friend bool operator==(const Sharding& a, const Sharding& b) {
    return a.dims == b.dims && a.partial == b.partial;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Sharding& p) {
    for (const DimCut& cut : p.dims) h = H::combine(std::move(h), cut.axes, cut.chunk);
    return H::combine(std::move(h), p.partial);
  }
};

// The number of devices along some axes together.
int64_t PartsOf(const Mesh& mesh, AxisSet axes);
AxisSet AllAxes(const Mesh& mesh);
// Whether devices that differ in (rank / stride) % count alone differ along `axes` alone.
bool IsAlong(const Mesh& mesh, AxisSet axes, int64_t count, int64_t stride);

Sharding WholeSharding(int rank);
// `p` with nothing to be added.
Sharding Settled(Sharding p);
// Cuts `dim` of a value of `shape` by `axes` in the least equal parts. Requires a fixed length.
Sharding CutSharding(const Mesh& mesh, ShapeView shape, int64_t dim, AxisSet axes);

Sharding ShardingOf(const Mesh& mesh, const Layout& layout, ShapeView shape);
// The layout that stores a value so; nullopt for a partial sum, or for parts of other lengths than
// LocalDims has.
std::optional<Layout> LayoutOfSharding(const Mesh& mesh, const Sharding& p, ShapeView shape);

// The shape that each device has of a value of `shape`.
Shape LocalShape(const Sharding& p, ShapeView shape);
// Bytes that each device has; dimensions with VARs count as their largest.
double LocalBytes(const Sharding& p, const UOp* node);
double LeastLocalBytes(const Sharding& p, const UOp* node);  // ... as their smallest

// "dim 0 by axes 0,1; sum over axis 2", or "whole".
std::string ToString(const Sharding& p);

}  // namespace outboard::shard
