// Sums into places that data names: the gradient of a gather.
//
// As a graph that is a sum over all rows t of WHERE(v == index[t], value, 0) for each place v,
// which costs places times rows. Where the equation can be solved for v it becomes zeros, and then
// one row after the other that is added to its place: places plus rows. Rows are added in their
// order, by one thread for each column, so that the bits do not depend on the threads.
#pragma once

#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/lower.h"

namespace outboard::schedule {

// How many places the REDUCE(ADD) scatters into, if it is of that form and large enough to be worth
// two kernels; else 0. Sums of narrow floats, which would be rounded with each row, are not, nor
// those over dimensions of VARs.
absl::StatusOr<int64_t> ScatterPlaces(Graph& graph, const UOp* reduce);

// The kernels of such a REDUCE: `ast` stores zeros and `then` adds the rows. Loads as LowerKernel.
// nullopt where what is stored hides the form.
absl::StatusOr<std::optional<LoweredKernel>> LowerScatter(
    Graph& graph, const UOp* reduce, const absl::flat_hash_set<const UOp*>& stored);

}  // namespace outboard::schedule
