// Dimensions made of VARs in kernels (docs/decisions/018-rooms-for-variables.md).
//
// Memory is laid out, and loops are counted, for the largest value of each dimension: its padded
// extent. Offsets are then the same for every binding, and a kernel that is in range for the padded
// extents is in range for all. Elements from the bound value on are undefined: they may hold
// anything, loops may stop before them (the end of a RANGE, op.h), and reductions skip them.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/accessors.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

inline int64_t PaddedSize(const Dim& dim) { return dim.max(); }
// The number of elements of `shape` with all dimensions padded.
int64_t PaddedSize(ShapeView shape);

// Returns the bound value of `dim`: an i64 scalar.
const UOp* ValueOf(Graph& graph, const Dim& dim);

// Returns a RANGE over `dim`.
const UOp* RangeOver(Graph& graph, int64_t id, const Dim& dim, RangeKind kind);

// index[0] * (dims[1] * dims[2] ...) + index[1] * ...: NumberOf with the bound values of `dims`
// (the element's row-major number), OffsetOf with their padded extents (its offset in memory).
const UOp* NumberOf(Graph& graph, const std::vector<const UOp*>& index, ShapeView dims);
const UOp* OffsetOf(Graph& graph, const std::vector<const UOp*>& index, ShapeView dims);

}  // namespace outboard::schedule
