// Turns a list of Opts into a loop plan. Each Opt is checked at its position in the list, so every
// plan that is returned can be rendered.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// A kernel and the plan of its loops. FLATTEN replaces the kernel too.
struct PlannedKernel {
  LoopNest kernel;
  LoopPlan plan;
};

// Applies `opts` in order to plain loops over `kernel`, which is consumed (FLATTEN replaces it).
// Errors: INVALID_ARGUMENT    an Opt that is not legal where it stands: names it and says why
//         RESOURCE_EXHAUSTED  more code, tiled loops or copied bytes than limits.h allows
absl::StatusOr<PlannedKernel> ApplyOpts(LoopNest kernel, std::span<const Opt> opts,
                                        const Target& target);

// An axis as opt.h numbers them: an output range, or a range of a reduction group. `group` is -1
// for outputs.
struct Axis {
  int group = -1;
  int range = -1;
};
std::vector<Axis> AxesOf(const LoopNest& kernel);
// Returns the LOADs in the order in which LOCAL numbers them.
std::vector<const UOp*> LoadsOf(const LoopNest& kernel);
// Returns what LOCAL numbers on a processor: the LOADs, then the values that are unpacked from
// some (UnpackedOf in operands/staging.h).
std::vector<const UOp*> CopyableOf(const LoopNest& kernel);

}  // namespace outboard::codegen
