// The whole of a plan: what is there once, and the loops of a task.
#include "compiler/program/lower/lowering.h"

#include <memory>

namespace outboard::program {

Lowering::Lowering(const LoopNest& kernel, const LoopPlan* plan)
    : PointLowering(kernel), plan_(plan) {}

Lowering::~Lowering() = default;

Program Lowering::RunPlan() {
  for (const ReduceGroup& group : kernel_.groups)
    level_of_group_.push_back(kernel_.IsNested(group) && (group.deps & ~kernel_.OutputSet())
                                  ? SIZE_MAX
                                  : plan_->LevelOfGroup(group));
  for (const auto& phase : plan_->online.phases)
    for (const size_t g : phase) level_of_group_[g] = SIZE_MAX;
  // What comes before the number of the task depends on none: it is computed once a call.
  if (plan_->blocks) block_ = std::make_unique<BlockLowering>(*this, *plan_);
  cpu_matrix_ = std::make_unique<CpuMatrixLowering>(*this, *plan_);
  OpenCopies();
  ReductionsAt(0);
  ValueId task = b_.Special(Grid::kBlock, plan_->tasks() * plan_->cluster);
  if (plan_->cluster > 1) task = b_.Divide(task, plan_->cluster);
  if (plan_->task_loops == 0) {
    MakeCopies(0);
    OutputLoops(0);
    EndCopies(0);
  } else {
    std::vector<ValueId> steps(plan_->task_loops);
    ValueId left = task;
    for (int i = plan_->task_loops - 1; i > 0; --i) {
      const int64_t count = plan_->trips(plan_->loops[i]);
      steps[i] = b_.Modulo(left, count);
      left = b_.Divide(left, count);
    }
    steps[0] = plan_->trips(plan_->loops[0]) == 1 ? b_.Int(0) : left;
    TaskLoops(0, steps);
  }
  if (block_ != nullptr) block_->LeaveCluster();
  return Take();
}

absl::StatusOr<Program> LowerPlan(const LoopNest& kernel, const LoopPlan& plan) {
  if (kernel.empty) return Program{{}, static_cast<int>(kernel.slot_elements.size())};
  return Lowering(kernel, &plan).RunPlan();
}

}  // namespace outboard::program
