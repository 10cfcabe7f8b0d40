// Rows that do not fill vectors, taken together: two ranges of a kernel become one, so that a
// vector goes on into the next row.
#pragma once

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// Vectors in a block after which a row of `length` starts again, or that hold all of `extent`; 0 if
// over the limit.
int64_t VectorsOfWholeRows(int64_t length, int64_t extent, int lanes);

// Where the range `inner`, b, is a row whose length wastes lanes (20 of 32), and the range a before
// it is seen in addresses only: the kernel, in `graph`, with one range p for both, a = p /
// extent(b) and b = p % extent(b). A vector then goes on into the next row; a load of it is one for
// each row it touches, but the arithmetic fills its lanes. nullptr where that is not possible or
// gains little.
const UOp* FlattenRows(Graph& graph, const LoopNest& kernel, int inner, const Target& target);

}  // namespace outboard::codegen
