// Turns sums over one-hot products into indexed loads (gathers).
//
// Gather, embedding, one-hot and the windows of a convolution are written as a sum over i of
// WHERE(i == e, value, 0). If e does not depend on i, only one term counts: value at i = e,
// provided e is in range. The same holds for any range that occurs in the equation with a constant
// factor, so the gradient of a window, a sum over window positions, collapses too.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard::schedule {

struct Solution {
  const UOp* range = nullptr;  // the range that was solved for
  const UOp* value = nullptr;  // the index it equals; does not contain it
  const UOp* guard = nullptr;  // when that index is inside the range; nullptr for always
  // Where the guard holds, range * factor == multiple, which has no division.
  const UOp* multiple = nullptr;
  int64_t factor = 1;
};

// Solves `left == right` (integers) for one of `ranges`. Prefers the largest range; one whose
// factor is neither 1 nor -1 must be more than twice as large. nullopt where no range stands in the
// equation linearly.
std::optional<Solution> SolveEquality(Graph& graph, const UOp* left, const UOp* right,
                                      const std::vector<const UOp*>& ranges);

// Returns REDUCE_LOOP(ADD, value, ranges) with one-hot sums solved and inner sums merged into this
// one. With empty `ranges`, returns the value itself. Loads that depend on a solved range are gated
// by its guard.
const UOp* MakeSum(Graph& graph, const UOp* value, std::vector<const UOp*> ranges);

}  // namespace outboard::schedule
