// The first step of a schedule: a graph without what only people and the wire need.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

// `sink` with every CALL replaced by its body, every dimension that can only be one number by that,
// and DETACH, ASSIGN, SHARD, UNSHARD, COPY, ALLREDUCE, which mean nothing on one device, by their
// value. `sink` may belong to another Graph than `graph`, in which the result is made.
// Errors: RESOURCE_EXHAUSTED  over limits::kGraphNodesMax nodes once the calls are written out
absl::StatusOr<const UOp*> Prepare(Graph& graph, const UOp* sink);

}  // namespace outboard::schedule
