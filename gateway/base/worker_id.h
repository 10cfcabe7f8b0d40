// The number of a worker.
#pragma once

#include <compare>
#include <cstdint>

namespace outboard::gateway {

// Given to a worker as it joins. A worker that rejoins gets another number.
struct WorkerId {
  uint64_t value = 0;
  auto operator<=>(const WorkerId&) const = default;
};

}  // namespace outboard::gateway
