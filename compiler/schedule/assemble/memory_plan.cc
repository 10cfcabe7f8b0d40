#include "compiler/schedule/assemble/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace outboard::schedule {

MemoryPlan PlanMemory(const std::vector<Lifetime>& temporaries) {
  const auto aligned = [&](int i) {
    return (temporaries[i].bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  };
  std::vector<int> order(temporaries.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return temporaries[a].bytes > temporaries[b].bytes; });

  MemoryPlan plan;
  plan.offsets.resize(temporaries.size());
  std::vector<int> placed;  // by offset
  for (const int i : order) {
    int64_t offset = 0;
    for (const int other : placed) {
      const bool apart = temporaries[other].last < temporaries[i].first ||
                         temporaries[i].last < temporaries[other].first;
      if (apart) continue;
      if (plan.offsets[other] >= offset + aligned(i)) break;  // the gap before it is large enough
      offset = std::max(offset, plan.offsets[other] + aligned(other));
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + aligned(i));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](int a, int b) { return plan.offsets[a] < plan.offsets[b]; }),
                  i);
  }

  int steps = 0;
  for (const Lifetime& t : temporaries) steps = std::max(steps, t.last + 1);
  std::vector<int64_t> change(steps + 1);
  for (size_t i = 0; i < temporaries.size(); ++i) {
    change[temporaries[i].first] += aligned(i);
    change[temporaries[i].last + 1] -= aligned(i);
  }
  int64_t alive = 0;
  for (const int64_t c : change) plan.bytes_least = std::max(plan.bytes_least, alive += c);
  return plan;
}

}  // namespace outboard::schedule
