// What one kernel may cost to compile.
#pragma once

#include <cstdint>

namespace outboard::limits {

inline constexpr int64_t kKernelNodesMax = 20000;
inline constexpr int64_t kKernelRangesMax = 64;  // dependence on ranges is a 64-bit mask
inline constexpr int64_t kKernelSlotsMax = 4096;
inline constexpr int64_t kAffineTermsMax = 24;  // a longer sum is computed as written

}  // namespace outboard::limits
