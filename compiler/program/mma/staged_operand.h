// An operand of a product by matrix units in shared memory: a stage has its part of the block's
// tile for some steps. The block's threads copy it there, or compute it where it is no copy; a warp
// loads fragments of it into registers.
//
// A stage is lines of elements, in chunks of 16 bytes that are rotated from line to line, so that 8
// chunks of a column lie in all 32 banks. No instruction transposes matrices of f32: the threads
// read their elements, of two chunks in four lines at a time, and lines are rotated twice as far.
//
// Where the taps of windows are in slots (codegen::MmaWindow; window_copies.cc), a thread copies a
// window at a time, and the slots without a tap are zeros from the beginning.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compiler/divide_up.h"
#include "compiler/matrix_unit.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/lower/point_lowering.h"
#include "compiler/program/program.h"

namespace outboard::program {

inline constexpr int64_t kFragment = 16;       // rows, or columns
inline constexpr int64_t kMmaDepthBytes = 32;  // of a row: the steps of one product

// Iterations of the main loop for an addend, each of which multiplies a stage, and its stages.
inline int64_t IterationsOf(const codegen::MmaTile& tile, const codegen::MmaAddend& addend) {
  return DivideUp(addend.steps, tile.steps);
}
inline int64_t StagesOf(const codegen::MmaTile& tile, const codegen::MmaAddend& addend) {
  return std::min(tile.stages, IterationsOf(tile, addend));
}

class StagedOperand {
 public:
  // The rows of the plan's product, or its columns. `plan` outlives this.
  StagedOperand(PointLowering& point, const codegen::MmaPlan& plan, bool is_rows);

  // The thread in the block, the first row or column of the block's tile, and the warp's number
  // among those that divide the tile.
  void Place(ValueId thread, ValueId origin, ValueId warp);
  // Shared memory for the stages of all addends.
  void OpenMemory();
  // What follows is of this addend.
  void Begin(const codegen::MmaAddend& addend);
  // Sets all stages to 0 where some slots have no tap; whether it does. A barrier has to follow.
  bool Clear();

  // Begins the copies of an iteration, and computes what is not copied, into registers.
  void Fetch(ValueId iteration, ValueId stage);
  // Stores what was computed to the stage.
  void Deposit(ValueId stage);
  bool computes() const { return !of_->copied; }

  // One fragment of 16 by two chunks: four matrices of 8 by a chunk. Those of rows are (first 8
  // rows, first steps), (last, first), (first, last), (last, last), as MMA's a has them; those of
  // columns are (first 8 columns, first steps), (first, last), (last, first), (last, last): two of
  // its b. For AMD's units AmdElement's.
  ValueId Load(ValueId stage, int64_t fragment, int64_t step);

  const codegen::MmaSide& side() const { return side_; }
  int64_t tile_size() const { return tile_size_; }
  ValueId origin() const { return origin_; }
  // Whether its rows or columns are slots of windows. OpenSlots opens their ranges at one of them,
  // and returns the condition that it exists, -1: it does.
  bool has_slots() const { return HasWindow(side_.ranges); }
  ValueId OpenSlots(ValueId index);
  // The first row or column of the warp's part of the tile.
  ValueId FirstOfWarp() { return b_.Plus(origin_, b_.Times(warp_, warp_size_)); }

 private:
  // What a thread copies at once: its place in the tile.
  struct Piece {
    ValueId line;
    ValueId number;  // in the line
    ValueId column;
  };

  int64_t Chunks() const { return length_ / chunk_; }
  int64_t PiecesOf(const codegen::MmaFactor& of) const;
  bool TakesElements() const { return of_->across && dtype_ == DType::kF32; }
  // The first element of a chunk of a line, whose number is `low` modulo 8.
  ValueId ElementOf(ValueId stage, ValueId line, ValueId low, ValueId chunk);
  Piece PieceOf(int64_t number);
  ValueId TargetOf(const Piece& piece, ValueId stage);
  // Opens the ranges of a piece; returns the condition that it exists, -1: it does.
  ValueId Open(const Piece& piece, ValueId iteration);
  void Close();
  void Copy(ValueId target, ValueId inside);
  bool HasWindow(const std::vector<int>& ranges) const {
    return product_.window.range >= 0 && !ranges.empty() && ranges.back() == product_.window.range;
  }
  // Begins the copies of a window, whose piece is open: of pairs of taps. CopySingles adds those of
  // all other taps, of all windows before.
  void CopyWindow(const Piece& piece, ValueId stage, ValueId inside);
  void CopySingles();
  // Where a slot of the piece's window lies in shared memory.
  ValueId SlotIn(const Piece& piece, ValueId stage, int64_t slot);
  ValueId LoadForAmd(ValueId stage, int64_t fragment, int64_t step);
  // The same of f32 whose rows or columns lie side by side, in the same order.
  ValueId LoadElements(ValueId stage, int64_t fragment, int64_t step);

  PointLowering& point_;
  ProgramBuilder& b_;
  OpenRanges& ranges_;
  const codegen::MmaProduct& product_;
  const codegen::MmaTile& tile_;
  const MatrixUnit unit_;
  const bool is_rows_;
  const codegen::MmaSide& side_;
  const int64_t tile_size_, warp_size_;  // rows or columns
  const DType dtype_;
  const int64_t chunk_, depth_;          // elements: of 16 bytes, and steps of an MMA
  ValueId thread_ = -1, lane_ = -1, origin_ = -1, warp_ = -1;
  ValueId memory_ = -1;
  ValueId values_ = -1;                         // private: what is computed rather than copied
  const codegen::MmaAddend* addend_ = nullptr;  // that is summed now
  const codegen::MmaFactor* of_ = nullptr;      // of it
  int64_t lines_ = 0, length_ = 0;              // of a stage; elements of a line
  int64_t pieces_ = 0;                          // a thread's, of a stage
  std::vector<Instruction> single_copies_;      // of windows, still to be added
};

}  // namespace outboard::program
