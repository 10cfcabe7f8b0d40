// Merges two ranges of a kernel whose rows do not fill vectors, so that a vector continues into the
// next row.
#pragma once

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// Returns the number of vectors in a block that ends at the end of a row of `length`, or that holds
// all of `extent`; 0 if over the limit.
int64_t VectorsOfWholeRows(int64_t length, int64_t extent, int lanes);

// Let b be the range `inner`, a row whose length wastes lanes (20 of 32), and a the range before
// it, used in addresses only. Returns the kernel, in `graph`, with one range p for both, a = p /
// extent(b) and b = p % extent(b). A vector then continues into the next row: it needs one load for
// each row it touches, but the arithmetic fills its lanes. nullptr if that is not possible or gains
// little.
const UOp* FlattenRows(Graph& graph, const LoopNest& kernel, int inner, const Target& target);

}  // namespace outboard::codegen
