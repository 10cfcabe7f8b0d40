// Which steps of the loop of panels a mask leaves visible. In causal attention the row of query i
// ends after key i: WHERE(i < j, -inf, score) hides the steps j > i, whose exponentials are 0. A
// loop over panels then runs from the first step to the last one that any row of the tile sees, so
// that a causal mask saves half of the work. VARs may be in such a condition, as where the queries
// are the last of so many keys.
//
// A condition hides a step if every reduction over the loop has a neutral term there:
//   - a maximum: -inf;
//   - a sum: a product with a factor that is 0 (the gradient of a WHERE);
//   - a sum: a product with exp(x - max x) where x is -inf. That factor is 0 unless the maximum is
//     -inf or NaN. A maximum that is -inf (a row that is masked everywhere) makes all terms NaN, so
//     the visible ones too, and at least one step is always run; a NaN is that of a visible x;
//   - a sum: a product with a factor that depends on the step alone, or on the row, as where the
//     maxima are loaded (gradients). Whether it is 0 is looked up: a guard.
// What a 0 is multiplied with is taken to be finite (docs/semantics.md, Masks).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// Whether numbers of the launch may decide which steps are hidden: where the loop ends, or in a
// condition. Loops of panels on processors go on to the largest number of steps.
enum class VarsOfSteps { kHideNothing, kMayHide };

// Returns nothing hidden if panels are read along several loops or by different rows, or if some
// reduction needs all steps.
VisibleSteps VisibleStepsOf(const LoopNest& kernel, const LoopPlan& plan, VarsOfSteps vars);

}  // namespace outboard::codegen
