#include "compiler/schedule_options.h"

#include "compiler/copies.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/cpu_matrix_unit_opts.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/parts.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/online/plan.h"
#include "compiler/proof/in_range.h"
#include "compiler/starting_opts.h"

namespace outboard {
namespace {

bool HasMatrixUnit(const Target& target) {
  return target.kind == TargetKind::kCpu ? target.bf16 == Bf16Products::kTiles
                                         : codegen::MatrixUnitOf(target).has_value();
}

// As the kernel is without Opts. Warpgroups take what mma.sync takes.
bool IsByMatrixUnit(const UOp* kernel, const Target& target) {
  Graph guards;
  const absl::StatusOr<const UOp*> guarded = proof::GuardUnproved(guards, kernel);
  if (!guarded.ok()) return false;
  const absl::StatusOr<codegen::LoopNest> nest = codegen::AnalyzeKernel(*guarded);
  if (!nest.ok()) return false;
  // Tiles take sums over windows, too, but copying these takes as long as products by vectors.
  if (target.kind == TargetKind::kCpu)
    return nest->groups.size() == 1 && nest->groups[0].ranges.size() == 1 &&
           codegen::CpuMatrixUnitOpts(*nest, target).has_value();
  const auto plan = codegen::PlanMma(*nest, target, nullptr);
  if (plan.ok() && plan->has_value()) return true;
  const auto online = program::PlanOnline(*nest, target, nullptr);
  return online.ok() && online->has_value();
}

// Of a copy, as CompileKernel plans a launch of so many. 0 where it turns out to be no kernel:
// compiling it says why.
absl::StatusOr<int64_t> MapsOf(const UOp* kernel, const Target& device, int64_t copies) {
  const Target target = ShareOf(device, copies);
  Graph guards;
  OB_ASSIGN_OR_RETURN(const UOp* const guarded, GuardedKernel(guards, kernel, target));
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest nest, codegen::AnalyzeKernel(guarded));
  OB_ASSIGN_OR_RETURN(const auto online, program::PlanOnline(nest, target, nullptr));
  if (online) return online->maps();
  OB_ASSIGN_OR_RETURN(const auto mma, codegen::PlanMma(nest, target, nullptr));
  OB_ASSIGN_OR_RETURN(const auto hopper, program::PlanHopper(nest, target, nullptr, mma));
  return hopper ? hopper->shape.maps() : 0;
}

}  // namespace

schedule::ScheduleOptions ScheduleOptionsFor(const Target& target) {
  schedule::ScheduleOptions options;
  if (HasMatrixUnit(target))
    options.uses_matrix_unit = [target](const UOp* kernel) {
      return IsByMatrixUnit(kernel, target);
    };
  if (target.kind != TargetKind::kCuda) return options;
  options.computes_scores = [target](const UOp* kernel) {
    return program::ComputesScores(kernel, target);
  };
  options.computes_sums = [target](const UOp* kernel) {
    return program::ComputesRowSums(kernel, target) ||
           program::ComputesSumsOfOnline(kernel, target);
  };
  options.parts_of_sum = [target](const UOp* kernel) {
    return program::PartsOfSum(kernel, target);
  };
  if (target.arch == "sm_90a")  // no other has views
    options.maps_of = [target](const UOp* kernel, int64_t copies) {
      return MapsOf(kernel, target, copies).value_or(0);
    };
  return options;
}

}  // namespace outboard
