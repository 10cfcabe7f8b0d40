// What a block of threads reads of a buffer as a whole: the rows that its results are made from,
// copied to its memory in wide pieces (LOCAL of a load in a reduction that threads divide, opt.h).
// Weights that are packed in blocks of 34 or 18 bytes are read number by number otherwise, and
// their sectors once for each number of a thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// Elements from `first` on, behind the place of the block's first row: the sum of each range's
// first value in the block times its coefficient.
struct RowLayout {
  std::vector<std::pair<int, int64_t>> rows;  // output ranges, with coefficients
  int64_t first = 0, elements = 0;            // multiples of `piece`
  int64_t piece = 1;                          // elements that are copied at a time
  bool may_end = false;                       // pieces of the last block may lie behind the buffer
};

// Of all loads of the buffer `slot`. Errors: INVALID_ARGUMENT  they are no such rows: their places
// are sums of output ranges that blocks are divided by and of what reductions add to these.
absl::StatusOr<RowLayout> LayOutRows(const LoopNest& kernel, const LoopPlan& plan, int64_t slot);

// Whether the load is of narrow numbers that do not lie side by side along a range, and reads most
// of what lies between its first and its last one.
bool ReadByNumbers(const LoopNest& kernel, const UOp* load);

}  // namespace outboard::codegen
