// The first pass of the schedule: removes from the graph what later passes need not know.
// Pure.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

// Returns `sink` with every CALL inlined, every dimension without VARs replaced by its number, and
// DETACH, ASSIGN and LAYOUT replaced by their value. Collectives stay (collective/lower.h). The
// result belongs to `graph`; `sink` may belong to another.
// Errors: RESOURCE_EXHAUSTED  more than limits::kGraphNodesMax nodes after inlining
absl::StatusOr<const UOp*> Prepare(Graph& graph, const UOp* sink);

}  // namespace outboard::schedule
