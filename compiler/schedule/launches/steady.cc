#include "compiler/schedule/launches/steady.h"

#include <algorithm>
#include <vector>

#include "compiler/copies.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"

namespace outboard::schedule {
namespace {

// Less is read in 0.2 us.
constexpr int64_t kBytesMin = 1 << 20;
// What a kernel writes is at most such a part of it.
constexpr int64_t kWrittenPart = 16;
constexpr size_t kSlotsMax = 62;  // bits of an argument, without its sign

// The inputs that stay as they are, by buffer.
std::vector<bool> SteadyBuffers(const Schedule& schedule) {
  std::vector<bool> steady;
  for (const ScheduledBuffer& buffer : schedule.buffers)
    steady.push_back(buffer.kind == ScheduledBuffer::Kind::kInput &&
                     std::ranges::count(schedule.over, static_cast<int>(buffer.index)) == 0);
  return steady;
}

}  // namespace

void MarkSteady(Graph& graph, const Target& target, Schedule& schedule) {
  if (target.kind != TargetKind::kCuda || !target.arch.starts_with("sm_9")) return;
  // It is a hint: a graph that is nearly full goes without.
  if (graph.node_count() + std::ssize(schedule.kernels) > limits::kGraphNodesMax) return;
  const std::vector<bool> steady = SteadyBuffers(schedule);
  for (ScheduledKernel& kernel : schedule.kernels) {
    if (kernel.together != 1) continue;  // several copies have other buffers each
    const size_t stores = kernel.ast->src.size();
    int64_t written = 0, slots = 0;
    for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
      const auto buffer = static_cast<size_t>(kernel.buffers[slot]);
      // Stores have the first slots, so that `written` is all of it before the first input.
      if (slot < stores) written += schedule.buffers[buffer].bytes();
      if (slot < kSlotsMax && steady[buffer] && schedule.buffers[buffer].bytes() >= kBytesMin &&
          schedule.buffers[buffer].bytes() / kWrittenPart >= written)
        slots |= int64_t{1} << slot;
    }
    if (slots != 0) kernel.ast = WithSteadySlots(graph, kernel.ast, slots);
  }
}

}  // namespace outboard::schedule
