// Finds sums of products of bf16 that a matrix unit of the processor can compute: REDUCE_LOOP(ADD)
// of MUL(CAST f32(a), CAST f32(b)), where a and b are LOADs of bf16.
//
// One output range, the rows, indexes a only; another one, the columns, which lies in 16 lanes,
// indexes b only; 32 steps of one reduced range, the inner one, are processed together. Both
// operands are copied first (staging.h), in blocks of 32 inner steps, padded with zeros past the
// end of the range:
//   rows      [row][32 steps]                a row of a block is 64 bytes
//   columns   [16 pairs of steps][column][2] what one instruction takes of 16 columns is 64 bytes
//
// kTiles is AMX (Intel, "Architecture Instruction Set Extensions", chapter 3: TDPBF16PS): tiles of
// 16 rows and 16 columns. kVectors is AVX512-BF16 (VDPBF16PS): 16 columns and one row at a time.
// Both add a pair of products to a running f32, rounding to nearest, and treat subnormal numbers as
// zeros.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/target.h"

namespace outboard::codegen {

using outboard::Bf16Products;  // the instructions of a processor (compiler/target.h)

inline constexpr int kCoreColumns = 16;  // and rows of a tile
inline constexpr int kCoreSteps = 32;
// Of the eight tile registers, four hold sums and two hold operands of columns.
inline constexpr int kCoreTilesMax = 4;
inline constexpr int kCoreColumnTilesMax = 2;

struct CpuMatrixUnit {
  Bf16Products by = Bf16Products::kNone;
  const UOp* rows = nullptr;  // LOADs
  const UOp* columns = nullptr;
  int row_range = -1;  // into LoopNest::ranges
  int column_range = -1;
  int inner_range = -1;
};

// Returns the matrix-unit operation for a group's reduction over the given ranges; leaves `by`
// unset. Errors: INVALID_ARGUMENT, names the condition that fails.
absl::StatusOr<CpuMatrixUnit> FindCpuMatrixUnit(const LoopNest& kernel, const ReduceGroup& group,
                                                int row_range, int column_range, int inner_range);

}  // namespace outboard::codegen
