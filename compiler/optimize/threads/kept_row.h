// Rows that threads keep: each thread reads its elements of a row once, before the first reduction
// that needs them, into its registers, or (KEEP) a part of them into the memory of its block.
// Lowering is compiler/program/lower/block_rows.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// A row of which each thread has the same elements wherever it is read, all in one step of their
// tiles. Where loads are not merged by themselves, it is kept without an Opt: a row that the kernel
// stores over, and one that ends at a VAR or in odd vectors, behind whose branches they lie.
struct KeptRow {
  int64_t slot = 0;
  int64_t in_registers = 0, in_memory = 0;        // vectors of a thread
  int64_t lanes = 1;                              // of each of them
  size_t group = 0;                               // the first that reads it
  int range = -1;                                 // along the row, in that group
  std::vector<std::pair<const UOp*, int>> loads;  // with the range along the row of each
};
// In the order of groups. None for plans without blocks of threads.
std::vector<KeptRow> KeptRowsOf(const LoopNest& kernel, const LoopPlan& plan);

// The bytes of a block's memory that hold its threads' part of the row.
int64_t BytesInMemory(const KeptRow& row, const LoopNest& kernel, const LoopPlan& plan);

// Whether half of the threads or more have this piece of an odd tile within the range: its sums are
// computed in all of them, without a branch (Lowering::InParts).
inline bool LiesMostlyWithin(const Tile& tile, const Piece& piece) {
  return tile.trips == 0 && piece.offset + tile.threads * tile.run / 2 <= tile.extent;
}

// Values of one pass of a loop over the part of a row that lies in shared memory. Shared memory can
// be indexed at run time; registers cannot, so the part in registers is written out.
inline constexpr int64_t kValuesOfStep = 8;
inline int64_t VectorsOfStep(int64_t lanes) {
  return lanes < kValuesOfStep ? kValuesOfStep / lanes : 1;
}

// Returns whether such a loop may run along this range: each of `rows` along it has a part in
// shared memory, and no pass of the loop leaves other values in registers for the next one.
bool MayRunInSteps(const LoopNest& kernel, const LoopPlan& plan, const std::vector<KeptRow>& rows,
                   int range);

// Returns whether the row is read by such a loop everywhere, since the tile written out would be
// too much code. Never of tiles with several vectors side by side.
bool RunsInSteps(const Tile& tile);

// Returns how many pieces of a tile are written out: all, less those that such a loop stands for.
int64_t PiecesWrittenOut(const LoopNest& kernel, const LoopPlan& plan,
                         const std::vector<KeptRow>& rows, const Tile& tile);

}  // namespace outboard::codegen
