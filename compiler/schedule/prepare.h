// The first step of a schedule: a graph without what only people and the wire need.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

// `sink` with every VAR replaced by its binding (so that every Dim is a number), every CALL by its
// body, and DETACH, ASSIGN, SHARD, UNSHARD, COPY, ALLREDUCE, which mean nothing on one device, by
// their value. `sink` may belong to another Graph than `graph`, in which the result is made.
// Errors: INVALID_ARGUMENT    a VAR without a binding, or out of its range
//         RESOURCE_EXHAUSTED  over limits::kGraphNodesMax nodes once the calls are written out
absl::StatusOr<const UOp*> Prepare(Graph& graph, const UOp* sink,
                                   std::span<const Binding> bindings);

}  // namespace outboard::schedule
