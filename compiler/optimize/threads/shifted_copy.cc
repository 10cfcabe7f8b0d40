#include "compiler/optimize/threads/shifted_copy.h"

#include <bit>

#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"

namespace outboard::codegen {
namespace {

absl::Status Illegal(const char* why) { return absl::InvalidArgumentError(why); }

}  // namespace

absl::StatusOr<ShiftedLayout> LayOutShifted(const LoopNest& kernel, const LoopPlan& plan,
                                            const UOp* load) {
  const RangeSet deps = kernel.DepsOf(load);
  if (std::popcount(deps) != 1 || (deps & ~kernel.OutputSet()) != 0 || load->src.size() != 1)
    return Illegal("the load is not along one output axis alone");
  const int range = std::countr_zero(deps);
  const Tile& tile = plan.tiles[static_cast<size_t>(range)];
  AffineForms forms;
  const Affine& form = forms.Of(load->src[0]->src[1]);
  if (form.CoefficientOf(kernel.ranges[static_cast<size_t>(range)].node) != 1 ||
      form.terms.size() != 1 || form.constant != 0)
    return Illegal("the load does not begin where its axis does");
  for (const UOp* store : kernel.stores)
    if (GlobalOfAccess(store).slot() == GlobalOfAccess(load).slot())
      return Illegal("the kernel stores where it loads");
  if (tile.align == 1 || tile.trips > 0) return Illegal("the axis is not aligned and written out");
  if (tile.odd()) return Illegal("the axis has odd vectors");
  if (plan.task_loops == 0) return Illegal("there is one block");
  for (int i = 0; i < plan.task_loops; ++i)
    if (plan.loops[static_cast<size_t>(i)].range == range) return Illegal("blocks divide the axis");
  if (tile.threads != plan.task_threads() || plan.block_threads() < tile.align)
    return Illegal("other threads than all of them lie along the axis");
  return ShiftedLayout{.range = range,
                       .lanes = tile.run,
                       .rows = static_cast<int64_t>(tile.rest.size()),
                       .of_block = plan.block_threads() * tile.run,
                       .apart = tile.threads * tile.run,
                       .before = tile.align};
}

}  // namespace outboard::codegen
