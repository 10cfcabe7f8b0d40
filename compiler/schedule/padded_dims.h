// Dimensions made of VARs in kernels (docs/decisions/018-rooms-for-variables.md).
//
// Memory is laid out, and loops are counted, for the largest value of each dimension: its padded
// extent. Offsets are then the same for every binding, and a kernel that is in range for the padded
// extents is in range for all. Elements from the bound value on are undefined: they may hold
// anything, loops may stop before them (the end of a RANGE, op.h), and reductions skip them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
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

// The last dimension that is longer than 1; -1 where none is.
int LastLongDim(ShapeView dims);

// Of materialised values whose rows, along LastLongDim, lie further apart than they are long: the
// elements from the start of one row to that of the next. What lies between two rows is never
// written and never read.
using RowPitches = absl::flat_hash_map<const UOp*, int64_t>;

// The elements of the memory of `value`, and the offset in it of the element at `index`.
int64_t ElementsInMemory(const UOp* value, const RowPitches& pitches);
const UOp* OffsetInMemory(Graph& graph, const std::vector<const UOp*>& index, const UOp* value,
                          const RowPitches& pitches);

}  // namespace outboard::schedule
