// Finds sums that are indexed loads: REDUCE(ADD, WHERE(position == index, value, 0)).
// Errors: RESOURCE_EXHAUSTED  a limit of the graph
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

// A REDUCE's loops after its one-hot conditions are solved (gather.h).
struct OneHot {
  const UOp* where = nullptr;  // the WHERE(condition, value, 0); nullptr: an ordinary REDUCE
  double loops_left = 1;       // iterations that remain
};

// Requires a REDUCE of a graph as Prepare leaves it.
absl::StatusOr<OneHot> FindOneHot(Graph& graph, const UOp* reduce);

}  // namespace outboard::schedule
