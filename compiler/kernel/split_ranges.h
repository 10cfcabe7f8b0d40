// Splits loops at the period of what they index, so that its divisions and remainders disappear.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::codegen {

// Returns the kernel, copied into `graph`, with each output range r that occurs in a sum under / c
// or % c as two ranges, r / c and r % c; also alone, where r / c is the place of a window that the
// loop of a sum moves. Requires that c is at most kSplitPeriodMax (compiler/split_period.h), the
// same for all of them, and divides the extent. The gradient of a window of stride 2 is such a
// kernel: which places of the window reach an element depends on whether its index is odd.
const UOp* SplitRanges(Graph& graph, const UOp* sink);

}  // namespace outboard::codegen
