// Dimensions of VARs in kernels (docs/decisions/018-rooms-for-variables.md).
//
// A dimension lies in memory, and is counted, as the largest that it can be: its room. So places
// are the same for every binding, and a kernel that is in range for the rooms is in range. Elements
// from the dimension's value on are nobody's: they hold anything, a loop over them may stop early
// (the end of a RANGE, op.h), and a reduction leaves them out.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/accessors.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

inline int64_t PaddedSize(const Dim& dim) { return dim.max(); }
// Elements that a value of this shape has room for.
int64_t PaddedSize(ShapeView shape);

// The dimension's value: an i64 scalar.
const UOp* ValueOf(Graph& graph, const Dim& dim);

// A RANGE over the dimension.
const UOp* RangeOver(Graph& graph, int64_t id, const Dim& dim, RangeKind kind);

// index[0] * (dims[1] * dims[2] ...) + index[1] * ...: the number of an element among those of the
// values, or its place in memory, among those of the padded_dims.
const UOp* NumberOf(Graph& graph, const std::vector<const UOp*>& index, ShapeView dims);
const UOp* OffsetOf(Graph& graph, const std::vector<const UOp*>& index, ShapeView dims);

}  // namespace outboard::schedule
