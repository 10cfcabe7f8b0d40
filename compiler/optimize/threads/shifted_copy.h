// Operands of rows that begin anywhere (ALIGN, opt.h), as scales and biases of a norm: they begin
// with a sector of memory, and what a warp has of a row does not begin with one of theirs, so that
// it would read five sectors for four. The block copies what its threads need, in whole sectors, to
// its memory, and they read it there (LOCAL of a load that no reduction has).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// For each vector that a thread has of the aligned axis a row of elements: those of the block's
// first value, as if the axis were not aligned, and `before` elements in front of that.
struct ShiftedLayout {
  int range = -1;     // the aligned output range, along which all threads of the task lie
  int64_t lanes = 1;  // of a vector
  int64_t rows = 0;
  int64_t of_block = 0;  // elements of a row without those before
  int64_t apart = 0;     // elements of the axis from one row to the next
  int64_t before = 0;

  int64_t row_elements() const { return of_block + before; }
  int64_t elements() const { return rows * row_elements(); }
};

// Errors: INVALID_ARGUMENT  the load is no such operand, or the axis is not tiled for it
absl::StatusOr<ShiftedLayout> LayOutShifted(const LoopNest& kernel, const LoopPlan& plan,
                                            const UOp* load);

}  // namespace outboard::codegen
