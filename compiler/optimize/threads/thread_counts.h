// Numbers of threads: powers of two.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compiler/divide_up.h"

namespace outboard::codegen {

inline int64_t FloorPower(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

// How many threads along a range of so many steps leave the fewest of them idle, the more the
// better where it is about the same.
inline int64_t ThreadsFor(int64_t steps, int64_t most) {
  int64_t best = 1;
  double least = 1e300;
  for (int64_t count = most; count >= 1; count /= 2) {
    if (count / 2 >= steps) continue;
    const auto waste = static_cast<double>(DivideUp(steps, count) * count);
    if (waste < 0.9 * least) least = waste, best = count;
  }
  return best;
}

}  // namespace outboard::codegen
