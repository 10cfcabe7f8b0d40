// Proves that a kernel, as a loop nest, accesses no memory outside its buffers.
//
// It comes before optimisation; what runs is proved once more as a program (program_range.h). Every
// LOAD and STORE is proved to lie in [0, elements) of its GLOBAL for all iterations of all loops,
// on the integers that the machine computes (prover.h), or to be disabled by its gate. It costs
// compile time only, and nothing at run time.
//
// Assumptions: loops run from 0 to their extent, a gated load whose gate is false reads nothing,
// and a buffer has as many elements as its GLOBAL states (the executor checks that).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::proof {

// Checks that every access of a verified kernel, given as its SINK or its STOREs, is proved to be
// in range.
// Errors: INTERNAL  an access that is not; the message shows it. (A tenant's kernels pass
//                   GuardUnproved first, so that it is a pass in between that has lost something.)
absl::Status CheckInRange(Sources roots);
inline absl::Status CheckInRange(const UOp* sink) {
  return CheckInRange(absl::MakeConstSpan(&sink, 1));
}

// Returns the same kernel with a gate on every LOAD that is not proved to be in range: outside the
// range it yields its alternative, or zero. Returns `sink` itself if there is no such LOAD.
// The proofs of all LOADs together have a bound (ProofBudget::work), above which the rest get
// gates, and those of all STOREs have one. `work`, unless it is null, is set to what they took.
// Errors: INTERNAL  a STORE that is not shown to be in range: stores are the compiler's own.
absl::StatusOr<const UOp*> GuardUnproved(Graph& graph, const UOp* sink, int64_t* work = nullptr);

}  // namespace outboard::proof
