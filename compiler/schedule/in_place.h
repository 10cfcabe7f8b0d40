// Results written over donated inputs.
//
// A Run may give inputs up: nobody reads them after it (an optimiser's old weights, a cache before
// its update). A result of the same size can then have such an input's memory, if every kernel that
// reads the input has run when the result is written. One kernel may do both where it reads the
// input only at the element that it writes: all of an element's loads come before its stores.
//
// What stands in the way, and what is done about it:
//   - a later kernel still reads the input: the writer is moved behind it, with all that waits for
//     the writer; where that kernel itself waits for the writer the result gets memory of its own;
//   - the writer reads the input elsewhere too (turned, windowed, gathered, summed), or computes an
//     element more than once: memory of its own;
//   - two results for one input: the first in the SINK has it;
//   - a dimension of VARs, a store under a gate, a move past more kernels than pay: memory of its
//     own.
// Whether somebody else holds the input after all is known only when it runs, and is the engine's
// to see to (worker/engine/engine.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/fuse_kernels.h"

namespace outboard::schedule {

// A result, and the PARAM that it is written over.
using WrittenOver = absl::flat_hash_map<const UOp*, const UOp*>;

// Decides for each of `results`, in their order, and reorders `kernels`, which are in a valid order
// and are so afterwards. A kernel that reads an input where it writes the result over it has one
// GLOBAL for both. `donated`: slots of PARAMs. Deterministic.
WrittenOver WriteInPlace(Graph& graph, std::vector<FusedKernel>& kernels,
                         std::span<const UOp* const> results, std::span<const int64_t> donated);

}  // namespace outboard::schedule
