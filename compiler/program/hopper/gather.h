// Operands that no box copies: windows, whose elements are zero beyond a border; rows that are no
// multiple of 16 bytes apart; indices that are no sum of loops. All threads of the first warpgroup
// copy them, 16 bytes of shared memory at a time, to where a box would have put them.
//
//   16, 8 or 4 bytes that lie side by side   COPY, with zeros where nothing is to be read
//   single elements                          LOADs of eight, then one STORE
//
// They are stores of the threads, of which the matrix unit knows nothing: a thread waits for its
// copies of an earlier step, fences and then arrives at that stage's barrier.
#pragma once

#include <cstdint>
#include <functional>

#include "compiler/program/program.h"

namespace outboard::program {

// Where an element is read; `inside`, unless it is -1, says whether it is not 0 instead.
struct GatheredPlace {
  ValueId buffer = -1, index = -1, inside = -1;
};
// Returns the place of element `row`, `k` of an operand (of B: column, k), from which on `run`
// elements lie side by side. Either may lie beyond the matrix.
using GatherPlaces = std::function<GatheredPlace(ValueId batch, ValueId row, ValueId k)>;

// A stage of an operand of 16 bits in shared memory.
struct GatheredStage {
  ValueId shared = -1;
  DType dtype = DType::kBF16;
  int64_t rows = 0;            // of a tile
  int64_t run = 1;             // elements that are copied together, up to 16 bytes
  bool along_rows = false;     // as of HopperOperand
  bool rows_in_lanes = false;  // neighbouring threads have neighbouring rows
};

// Begins all copies of a stage whose first element is `first` in shared memory, of the elements
// from batch, row and k `from` on. By the threads 0 to 127, which are `thread`.
struct GatherFrom {
  ValueId first = -1, batch = -1, row = -1, k = -1;
};
void GatherStage(ProgramBuilder& b, const GatheredStage& stage, const GatherPlaces& places,
                 const GatherFrom& from, ValueId thread);

}  // namespace outboard::program
