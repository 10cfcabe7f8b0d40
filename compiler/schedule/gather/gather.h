// Sums of one-hot products become loads.
//
// Gather, embedding, one-hot and the windows of a convolution are written as a sum over i of
// WHERE(i == e, value, 0). With e free of i only one term counts: value at i = e, if e is in range.
// The same holds for any range that stands in the equation with a constant factor, so the gradient
// of a window (a sum over the windows' places) collapses too.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard::schedule {

struct Solution {
  const UOp* range = nullptr;  // the range that is gone
  const UOp* value = nullptr;  // what it equals, free of it
  const UOp* guard = nullptr;  // when it is a place of the range; nullptr for always
};

// Solves `left == right` (integers) for one of `ranges`. Prefers the largest range, among those
// with factor 1 or -1 if there are any. nullopt where no range stands in the equation linearly.
std::optional<Solution> SolveEquality(Graph& graph, const UOp* left, const UOp* right,
                                      const std::vector<const UOp*>& ranges);

// REDUCE_LOOP(ADD, value, ranges) with every sum that can be collapsed or joined gone: one-hot sums
// solved, inner sums joined to this one. `ranges` may be empty: then the value itself. Loads that
// depend on a solved range are gated by its guard.
const UOp* MakeSum(Graph& graph, const UOp* value, std::vector<const UOp*> ranges);

}  // namespace outboard::schedule
