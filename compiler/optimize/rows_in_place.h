// Kernels that store a row over the one that their reductions have read. The kernel says so itself:
// it loads a slot that it stores. What the schedule has made sure of is in
// compiler/schedule/in_place/rows.h; what has to be true of its loops is here.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// The output ranges that number such rows (0: there is one row); nullopt for all other kernels.
std::optional<RangeSet> RowsInPlace(const LoopNest& kernel);

// Whether all of a row is read before any of it is stored: loops over rows are outside of those
// along them, of which none is divided into tasks; no copy is made of what is stored; threads that
// share a row divide its reductions and wait for each other, where they join them, in the memory
// of the block.
// Errors: INVALID_ARGUMENT  names what is not so
absl::Status CheckRowsInPlace(const LoopNest& kernel, const LoopPlan& plan);

// Whether what is reduced is made from a load of one of these slots.
bool ReadsAnyOf(const ReduceGroup& group, const absl::flat_hash_set<int64_t>& slots);

}  // namespace outboard::codegen
