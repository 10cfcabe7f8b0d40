// Opts to plans: each is checked where it stands in its list, so that a plan that comes out can be
// rendered.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// A kernel and the loops it is computed in. FLATTEN makes another kernel of it.
struct PlannedKernel {
  LoopNest kernel;
  LoopPlan plan;
};

// Applies `opts` in order to plain loops over `kernel`, which is consumed (FLATTEN makes another).
// Errors: INVALID_ARGUMENT    an Opt that is not legal where it stands: names it and says why
//         RESOURCE_EXHAUSTED  more code, tiled loops or copied bytes than limits.h allows
absl::StatusOr<PlannedKernel> ApplyOpts(LoopNest kernel, std::span<const Opt> opts,
                                        const Target& target);

// An axis of opt.h: an output range, or one of a reduction group's. `group` is -1 for outputs.
struct Axis {
  int group = -1;
  int range = -1;
};
std::vector<Axis> AxesOf(const LoopNest& kernel);
// LOADs in the order that LOCAL numbers them.
std::vector<const UOp*> LoadsOf(const LoopNest& kernel);

}  // namespace outboard::codegen
