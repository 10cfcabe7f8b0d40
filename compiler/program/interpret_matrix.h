// What 32 threads of the interpreter do together with matrices: MMA and LDMATRIX.
#pragma once

#include <array>
#include <cstdint>

#include "compiler/program/program.h"
#include "compiler/target.h"

namespace outboard::program {

// Where each thread's values lie, as interpret_lanes.h has them.
using WarpRegisters = std::array<int64_t*, kWarpThreads>;

// MMA: places of its sources, of four lanes of b, and of its value. Sums are exact in double, and
// rounded once.
void MultiplyMatrices(const WarpRegisters& threads, int32_t a, int32_t b, int32_t c, int32_t out);

// LDMATRIX: `rows` are as the threads named them.
using MatrixRows = std::array<std::array<int64_t, 8>, kWarpThreads>;
void DistributeMatrices(const MatrixRows& rows, bool transposed, const WarpRegisters& threads,
                        int32_t out);

}  // namespace outboard::program
