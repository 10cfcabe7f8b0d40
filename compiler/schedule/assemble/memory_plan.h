// Assigns temporaries to offsets in one arena.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace outboard::schedule {

inline constexpr int64_t kArenaAlignment = 64;  // a cache line, and the widest vector

struct Lifetime {
  int64_t bytes = 0;
  int first = 0;  // the step that writes it
  int last = 0;   // the last step that reads it; both inclusive
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // by temporary, multiples of kArenaAlignment
  int64_t bytes = 0;
  int64_t bytes_least = 0;  // most bytes (aligned) alive at one step
};

// Greedy by size: the largest first, each at the lowest offset that is free during its life.
MemoryPlan PlanMemory(const std::vector<Lifetime>& temporaries);

}  // namespace outboard::schedule
