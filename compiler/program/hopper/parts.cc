#include "compiler/program/hopper/parts.h"

#include <optional>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/proof/in_range.h"

namespace outboard::program {

int64_t PartsOfSum(const UOp* kernel, const Target& target) {
  Graph guards;
  const absl::StatusOr<const UOp*> guarded = proof::GuardUnproved(guards, kernel);
  if (!guarded.ok()) return 1;
  const absl::StatusOr<codegen::LoopNest> nest = codegen::AnalyzeKernel(*guarded);
  if (!nest.ok()) return 1;
  const absl::StatusOr<std::optional<codegen::MmaPlan>> mma =
      codegen::PlanMma(*nest, target, nullptr);
  if (!mma.ok()) return 1;
  const absl::StatusOr<std::optional<HopperPlan>> plan = PlanHopper(*nest, target, nullptr, *mma);
  return plan.ok() && plan->has_value() ? (*plan)->tile.split : 1;
}

}  // namespace outboard::program
