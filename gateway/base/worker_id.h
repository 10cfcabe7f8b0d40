// The number of a worker: the gateway counts those that join, and gives a worker that joins again
// another one.
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
