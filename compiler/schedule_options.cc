#include "compiler/schedule_options.h"

#include "compiler/program/hopper/parts.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/online/plan.h"

namespace outboard {

schedule::ScheduleOptions ScheduleOptionsFor(const Target& target) {
  schedule::ScheduleOptions options;
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
  return options;
}

}  // namespace outboard
