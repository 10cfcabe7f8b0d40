// Scatter-adds: sums at data-dependent offsets, such as the gradient of a gather.
//
// In the graph, each element v of the result is a sum over all rows t of WHERE(v == index[t],
// value, 0), which costs elements times rows. If the equation can be solved for v, the kernel
// stores zeros and then adds the rows one by one: elements plus rows. One thread adds the rows of a
// column in order, so the bits do not depend on the number of threads.
//
// On GPUs the places are divided into parts, each with threads of its own (decision 214): all look
// at every row, in the same order, and add those whose place is in their part. An element is still
// one thread's, and gets the same additions in the same order.
//
// Errors: RESOURCE_EXHAUSTED  a limit of the graph
#pragma once

#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/lower.h"
#include "compiler/target.h"

namespace outboard::schedule {

// Returns the number of elements that the REDUCE(ADD) scatters into if it has that form and is
// large enough to be worth two kernels, else 0. Sums of narrow floats, which would round at each
// row, and sums over dimensions made of VARs do not qualify.
absl::StatusOr<int64_t> ScatterPlaces(Graph& graph, const UOp* reduce);

// Returns the kernels of such a REDUCE: `ast` stores zeros, `then` adds the rows; loads are made as
// by LowerKernel. nullopt if a materialised value hides the form.
absl::StatusOr<std::optional<LoweredKernel>> LowerScatter(
    Graph& graph, const UOp* reduce, const Target& target,
    const absl::flat_hash_set<const UOp*>& stored, const RowPitches& pitches);

// Returns into how many parts `places` are divided, a power of two; 1 on processors, and where the
// number of multiprocessors is not known. `threads`: that add the elements of one place. `rows`:
// that are added. Less than twice as many parts as places; never more than rows.
int64_t ScatterParts(const Target& target, int64_t places, double threads, double rows);

}  // namespace outboard::schedule
