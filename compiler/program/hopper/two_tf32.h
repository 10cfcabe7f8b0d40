// Products of f32 by three products of TF32, which has 11 binary digits: x = high + low, and of a
// product low * low is left out.
//
// What is in registers is rounded: high is the nearest TF32, low has the sign of the difference.
// What is in shared memory stays as it is: the unit cuts off 13 bits, so that high is x cut off,
// and low, which is exact, has the sign of x. Of low parts, too, the unit reads 11 digits.
//
// With u' = 2^-24, of |a b|: low * low is at most 2^-11 * 2^-10 = 8 u', and what is cut off of low
// 2 u' for a (12 digits of it are left by rounding) and 6 u' for b (13 digits). A stage, 32 steps,
// is summed by the unit from 0, the small products first: four times nine terms of high * high,
// each of which may lose a whole unit in the last place of the largest, 2 u', and the small ones
// less than u'. Together at most 90 u' of the sum of |a b|, and u' for each addition of a stage's
// sum in f32: (90 + k / 32) u', which is within the bound of every other sum, k u', from 93 steps
// on. kThreeProductsStepsMin is more: a ring of four stages, which fewer steps would not fill.
//
// That holds where low parts have all their digits. TF32 has no digit below 2^-136, so that each
// number may be wrong by that much as well: 2^-136 (|a| + |b|) more for each product, no more than
// 2 u' of |a b| where both are 2^-112 or larger.
#pragma once

#include "compiler/program/hopper/product.h"
#include "compiler/program/hopper/results.h"
#include "compiler/program/program.h"

namespace outboard::program {

inline constexpr int64_t kThreeProductsStepsMin = 128;

// What a matrix unit reads of f32: x is high + low; of low the unit reads 11 digits.
struct TwoTf32 {
  ValueId low = -1, high = -1;
};

// The parts of four f32, rounded, for matrix units of any kind. Of an infinity or a NaN one of them
// is not finite, or both; a NaN may overflow into a zero, and then the low part is one.
TwoTf32 SplitRounded(ProgramBuilder& b, ValueId four);
// The low part of four f32 whose high part is what the unit reads of them.
ValueId LowOfCut(ProgramBuilder& b, ValueId four);

// Four f32 as a unit is to read them in one product, the nearest TF32. What would become an
// infinity, or is one, is cut off.
ValueId RoundedToTf32(ProgramBuilder& b, ValueId four);
// Whether a single f32 is so.
ValueId IsInfiniteOrNan(ProgramBuilder& b, ValueId x);

// Computes the thread's sums of the tile that are infinite or NaN once more, in f32: an infinity
// has no low part. By all threads; those whose sums are finite only look at them.
void ComputeAgain(ProgramBuilder& b, const HopperShape& shape, ValueId thread, const SumTile& tile);

}  // namespace outboard::program
