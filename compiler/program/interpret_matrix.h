// What 32 threads of the interpreter do together with matrices: MMA and LDMATRIX.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "compiler/ir/dtype.h"
#include "compiler/program/program.h"
#include "compiler/target.h"

namespace outboard::program {

// Where each thread's values lie, as interpret_lanes.h has them.
using WarpRegisters = std::array<int64_t*, kWarpThreads>;

// MMA of numbers of a type: places of its sources, of one matrix of b, and of its value. Sums of
// bf16 and f16 are exact in double and rounded once. Those of others are as coarse as any unit's:
// see CutSum.
void MultiplyMatrices(DType dtype, const WarpRegisters& threads, int32_t a, int32_t b, int32_t c,
                      int32_t out);

// The same by a unit of AMD's: `registers` are those of its ThreadsOf(unit) threads.
void MultiplyByAmd(MatrixUnit unit, absl::Span<int64_t* const> registers, int32_t a, int32_t b,
                   int32_t c, int32_t out);

// The sum of `terms` as the coarsest matrix unit computes it: each is cut off at the last of the
// digits that the largest of them has, and the sum at the last that it has in f32. Of 8-bit floats
// sm_90's adds with 14 digits.
inline constexpr int kDigitsOfF32 = 24, kDigitsOfSmallSums = 14;
double CutSum(absl::Span<const double> terms, int digits);

// LDMATRIX: `rows` are as the threads named them, of 16 bytes in numbers of a type.
using MatrixRows = std::array<std::array<int64_t, 16>, kWarpThreads>;
void DistributeMatrices(DType dtype, const MatrixRows& rows, bool transposed,
                        const WarpRegisters& threads, int32_t out);

}  // namespace outboard::program
