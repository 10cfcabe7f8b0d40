// What the windows over each place of a convolution's input give to its gradient, as one sum of
// products.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "compiler/ir/uop.h"

namespace outboard::gradient {

// Whether `node` rounds a float to a narrower one.
bool IsNarrowingCast(const UOp* node);

// Returns the sum of `dy` over `axes`, which stay with length 1, of what its terms were before they
// were rounded to a narrower float, rounded to that once; nullptr where `dy` is not
//   WHERE(place == stride * window + dilation * tap, x, 0)
// with x a sum that was rounded, for each window and tap, and `axes` those of windows and taps.
//
// Of windows that move by more than one and overlap, places and taps become quotients and
// remainders by the stride: a sum of windows that move by one, for each remainder, of taps that are
// filled up with zeros.
//
// Left as they are: strided windows with dilation, of fewer than 8 channels (the second axis,
// before those of windows), or that do not overlap, so that each place has one term; those over
// places that are no multiple of the stride, and of a stride over kSplitPeriodMax, whose loops are
// not split (compiler/split_period.h); those whose taps would become over 3 / 2 as many; and ones
// with many more places than windows, where the schedule stores x, in as few bytes as it is rounded
// to.
const UOp* SumOfWindows(Graph& g, const UOp* dy, absl::Span<const int64_t> axes);

}  // namespace outboard::gradient
