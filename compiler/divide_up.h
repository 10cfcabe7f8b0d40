// Division of counts that rounds up: how many pieces of a size something is cut into, where the
// last one may be smaller.
#pragma once

#include <cstdint>

namespace outboard {

// The least q with q * b >= a. a >= 0, b > 0, and a + b fits.
constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace outboard
