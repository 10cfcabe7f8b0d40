// Sums of products of bf16 by the processor's own instructions: REDUCE_LOOP(ADD) of
// MUL(CAST f32(a), CAST f32(b)), where a and b are LOADs of bf16.
//
// One output range, the rows, moves a alone; another one, the columns, which lies in 16 lanes,
// moves b alone; 32 steps of one reduced range, the inner one, are taken together. Both operands
// are copied first (stage.h), in blocks of 32 inner steps, zero where the range has ended:
//   rows      [row][32 steps]                a row of a block is 64 bytes
//   columns   [16 pairs of steps][column][2] what one instruction takes of 16 columns is 64 bytes
//
// kTiles is AMX (Intel, "Architecture Instruction Set Extensions", chapter 3: TDPBF16PS): tiles of
// 16 rows and 16 columns. kVectors is AVX512-BF16 (VDPBF16PS): 16 columns and one row at a time.
// Both add a pair of products to a running f32, rounding to nearest, and take subnormal numbers for
// zeros.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/target.h"

namespace outboard::codegen {

using outboard::Bf16Products;  // what a processor has (compiler/target.h)

inline constexpr int kCoreColumns = 16;  // and rows of a tile
inline constexpr int kCoreSteps = 32;
// Of the eight tiles, four hold sums, and two columns' operands.
inline constexpr int kCoreTilesMax = 4;
inline constexpr int kCoreColumnTilesMax = 2;

struct TensorCore {
  Bf16Products by = Bf16Products::kNone;
  const UOp* rows = nullptr;  // LOADs
  const UOp* columns = nullptr;
  int row_range = -1;  // into LoopNest::ranges
  int column_range = -1;
  int inner_range = -1;
};

// The operation for a group's reduction, with `rows` and `inner` as said; `by` is left open.
// Errors: INVALID_ARGUMENT, says what does not fit.
absl::StatusOr<TensorCore> FindTensorCore(const LoopNest& kernel, const ReduceGroup& group,
                                          int row_range, int column_range, int inner_range);

}  // namespace outboard::codegen
