// Merges the loops of a kernel into fewer, longer ones, so that a contiguous array is traversed by
// one loop.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::codegen {

// Returns the kernel, copied into `graph`, without ranges of extent 1, and with every two ranges a,
// b of one kind that occur only as a * extent(b) + b merged into one. The order of the elements of
// a reduction does not change.
const UOp* MergeRanges(Graph& graph, const UOp* sink);

}  // namespace outboard::codegen
