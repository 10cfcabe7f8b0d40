// Large sums in two steps: one kernel of partial results, which are kept, and one that joins them.
//
// A kernel is handed out to threads by its results: a sum over many elements that has fewer results
// than that takes is split. So is a sum of products over operands that do not stay in a cache, but
// would in parts (the gradient of a convolution's weights). How many parts there are follows from
// the shapes and the target's caches, so that the bits do not depend on the threads.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

// `sink` with such REDUCEs split, but for one-hot sums, which are loads, and those over dimensions
// of VARs, whose number of partial results would differ. Partial results of narrow floats are f32.
// Requires a graph as Prepare leaves it.
absl::StatusOr<const UOp*> SplitReductions(Graph& graph, const UOp* sink, const Target& target);

}  // namespace outboard::schedule
