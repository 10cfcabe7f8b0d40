// The longest period at which loops are split into quotient and remainder: the strides of windows
// whose sums are written by remainders (compiler/gradient/window_sums.h) because these loops can be
// split (compiler/kernel/split_ranges.h).
#pragma once

#include <cstdint>

namespace outboard {

// A convolution's stride is 2 as a rule, 4 for patches. Each remainder is one more place of the
// split loop that every access has.
inline constexpr int64_t kSplitPeriodMax = 4;

}  // namespace outboard
