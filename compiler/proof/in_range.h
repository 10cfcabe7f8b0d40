// Proof that a kernel touches nothing outside its buffers.
//
// The last look at a kernel before LLVM, by someone who made no part of it: every LOAD and STORE is
// shown to lie in [0, elements) of its GLOBAL for all steps of all loops, on the integers that the
// machine computes (prover.h), or not to happen because of its gate. It costs compile time and
// nothing per step.
//
// What is taken as given: that loops run from 0 to their extent, that a gated load whose gate is
// false reads nothing, and that a buffer has as many elements as its GLOBAL says (the executor
// checks that).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::proof {

// Whether every access of a verified kernel, its SINK or its STOREs, is shown to be in range.
// Errors: INTERNAL  an access that is not; the message shows it. (A tenant's kernels pass
//                   GuardUnproved first, so that it is a pass in between that has lost something.)
absl::Status CheckInRange(Sources roots);
inline absl::Status CheckInRange(const UOp* sink) {
  return CheckInRange(absl::MakeConstSpan(&sink, 1));
}

// The same kernel with a gate on every LOAD that is not shown to be in range: outside, it gives its
// alternative, or zero. `sink` itself where there is none.
// Errors: INTERNAL  a STORE that is not shown to be in range: stores are the compiler's own.
absl::StatusOr<const UOp*> GuardUnproved(Graph& graph, const UOp* sink);

}  // namespace outboard::proof
