#include "compiler/starting_opts.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/decompose_math.h"
#include "compiler/kernel/decompose_math_f64.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/kernel/row_sums.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/online/plan.h"
#include "compiler/proof/in_range.h"

namespace outboard {

absl::StatusOr<const UOp*> GuardedKernel(Graph& graph, const UOp* sink, const Target& target) {
  OB_RETURN_IF_ERROR(codegen::CheckWrittenSize(sink));
  OB_ASSIGN_OR_RETURN(const UOp* guarded, proof::GuardUnproved(graph, sink));
  // OpenCL has its own. A processor has a library, too, which takes one number after the other.
  if (target.kind != TargetKind::kOpenCl)
    guarded = codegen::DecomposeTranscendentalsOfF64(graph, guarded);
  if (target.kind == TargetKind::kCuda) guarded = codegen::DecomposeByUnit(graph, guarded);
  return guarded;
}

absl::StatusOr<const UOp*> PlainKernel(Graph& graph, const UOp* sink, const Target& target) {
  OB_ASSIGN_OR_RETURN(const UOp* const guarded, GuardedKernel(graph, sink, target));
  if (!codegen::HasRowSums(guarded)) return guarded;
  OB_ASSIGN_OR_RETURN(const UOp* const spread, codegen::WithoutRowSums(graph, guarded));
  return GuardedKernel(graph, spread, target);
}

absl::StatusOr<std::vector<std::vector<codegen::Opt>>> StartingOpts(const UOp* sink,
                                                                    const Target& target) {
  using codegen::OptKind;
  OB_RETURN_IF_ERROR(VerifyGraph(sink, Level::kKernel));
  Graph guards;
  OB_ASSIGN_OR_RETURN(const UOp* const guarded, GuardedKernel(guards, sink, target));
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest kernel, codegen::AnalyzeKernel(guarded));
  std::vector<std::vector<codegen::Opt>> lists;
  const auto add = [&](OptKind kind, int64_t axis, int64_t amount) {
    lists.push_back({codegen::Opt{kind, axis, amount}});
  };
  OB_ASSIGN_OR_RETURN(const std::optional<program::OnlinePlan> online,
                      program::PlanOnline(kernel, target, nullptr));
  if (online) add(OptKind::kOnline, 0, program::OnlineAmount(online->tile));
  OB_ASSIGN_OR_RETURN(const std::optional<codegen::MmaPlan> mma,
                      codegen::PlanMma(kernel, target, nullptr));
  const auto add_groups = [&](program::Gathers gathers) -> absl::StatusOr<bool> {
    OB_ASSIGN_OR_RETURN(const std::optional<program::HopperPlan> hopper,
                        program::PlanHopper(kernel, target, nullptr, mma, gathers));
    if (hopper)
      add(OptKind::kWgmma, kernel.groups[0].ranges[0], program::WgmmaAmount(hopper->tile));
    return hopper.has_value();
  };
  OB_ASSIGN_OR_RETURN(const bool preferred, add_groups(program::Gathers::kWhereFaster));
  if (mma) add(OptKind::kMma, kernel.groups[0].ranges[0], codegen::MmaAmount(mma->tile));
  if (!preferred) OB_RETURN_IF_ERROR(add_groups(program::Gathers::kAnyway).status());
  OB_ASSIGN_OR_RETURN(const UOp* const plain, PlainKernel(guards, sink, target));
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest loops, codegen::AnalyzeKernel(plain));
  lists.push_back(codegen::HeuristicOpts(loops, target, codegen::kCodePrice));
  if (target.block_threads > 1 && !lists.back().empty()) lists.push_back({});
  return lists;
}

}  // namespace outboard
