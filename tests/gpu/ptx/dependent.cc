// Launches that start before what they depend on is done (griddepcontrol).
//
// What the launch before has not written yet could be anywhere, so a thread of a dependent launch
// touches no global memory before it has waited, or has met one whose warp has at a barrier. A grid
// of which no thread waits may be done before what it depends on: the launch behind it, which waits
// for it alone, would then be too early.
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {

void Execution::WaitForPrerequisites(Warp* warp, const Instruction& in, uint32_t mask) {
  constexpr uint8_t kWait = 1;  // mode; 0 is launch_dependents, which changes nothing here
  if (in.mode != kWait) return;
  any_waited_ = true;
  warp->awaited |= mask;
  // Clocks are the warp's: others may rely on it when all of its lanes have waited.
  if ((warp->live & ~warp->awaited) == 0) warp->clocks.prerequisites = true;
}

bool Execution::CheckPrerequisites(Warp* warp, int lane, const Instruction& in, Space space,
                                   uint64_t address) {
  if (!config_.dependent || (warp->awaited >> lane & 1) != 0 || warp->clocks.prerequisites)
    return true;
  Tell(ReportKind::kDependency, in, warp, lane, space, address,
       "before griddepcontrol.wait, in a launch that starts before those it depends on are done");
  return false;
}

void Execution::CheckAnyWaited(Warp* warp, const Instruction& in) {
  if (!config_.dependent || any_waited_) return;
  const uint32_t size = cluster_shape_[0] * cluster_shape_[1] * cluster_shape_[2];
  if (next_block_ < block_count_ / size) return;
  for (const auto& block : blocks_)
    if (block->live_warps > 0) return;
  Tell(ReportKind::kDependency, in, warp, 0, Space::kGeneric, 0,
       "the last thread leaves, and none has run griddepcontrol.wait: the launch may be done "
       "before those it depends on");
}

}  // namespace outboard::ptx
