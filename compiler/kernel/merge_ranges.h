// Fewer, longer loops for the same kernel.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::codegen {

// The kernel, copied into `graph`, without ranges of extent 1, and with every two ranges a, b of
// one kind that appear only as a * extent(b) + b made one range. The order in which elements of a
// reduction come is unchanged.
const UOp* MergeRanges(Graph& graph, const UOp* sink);

}  // namespace outboard::codegen
