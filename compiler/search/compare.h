// Which results count as equal, and the kernel by which a device compares them itself. Results of
// another order of sums differ in their last digits; those of a wrong candidate differ by more.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"

namespace outboard::search {

// What each byte of results is filled with before a candidate runs: of floats not a number, of
// integers no plausible result. An element that still holds it was not written.
char UnwrittenByte(DType dtype);

// The difference that another order of sums may make: this much of a number, or this much where
// the number is below 1. Of numbers of the size that SlotBuffers::FillRandom makes.
double ToleranceOf(DType dtype);

// Whether a result may stand for another: the same, both not a number, or within the tolerance. An
// infinity stands for itself alone.
bool IsWithinTolerance(DType dtype, double got, double want);

// A kernel with three slots: counts, i32[kDifferenceCounts]; results, dtype[elements]; expected
// ones, likewise. The counts add up to the number of results that may not stand for the expected.
// `elements` is positive and at most 2^40.
inline constexpr int64_t kDifferenceCounts = 1024;
const UOp* DifferencesKernel(Graph& g, DType dtype, int64_t elements);

}  // namespace outboard::search
