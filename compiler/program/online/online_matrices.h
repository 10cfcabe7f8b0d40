// The matrices of an online kernel (compiler/program/online/plan.h) in memory of the block: copies
// to there, or what is unpacked in registers on the way, and fragments for MMA from there.
//
// A line holds chunks of 16 bytes, turned around from line to line, so that the chunks of a column
// lie in all banks. Past the extents of rows, steps and widths there are zeros, and so there are
// past the end of steps, but for what lies side by side with steps below it: scores alone read
// that, and those columns of scores count for nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/program/lower/point_lowering.h"
#include "compiler/program/online/plan.h"

namespace outboard::program {

class OnlineMatrices {
 public:
  OnlineMatrices(PointLowering& point, const OnlinePlan& plan)
      : point_(point),
        b_(point.builder()),
        ranges_(point.ranges()),
        plan_(plan),
        tile_(plan.tile),
        chunk_(16 / ByteWidth(plan.dtype)) {}

  // Terms of a product of the unit: two chunks.
  int64_t depth() const { return 2 * chunk_; }

  // Allocates memory: for rows once, for steps as often as the tile has stages.
  void Open();
  // The numbers of the thread, and of its lane, and the first row of the block.
  void Place(ValueId thread, ValueId lane, ValueId origin);
  // How many steps there are, where they end before their extent: beyond these are zeros.
  void EndSteps(ValueId steps) { steps_ = steps; }

  // Begins copies of a matrix: of the block's rows, or of the steps of the iteration `number`.
  // What is unpacked is stored at once: a barrier comes before others read it.
  void Fetch(size_t index, ValueId number, ValueId stage);

  // Four matrices of 8 by a chunk: of the 16 rows, steps or columns from 8 * `own` on, and of the
  // terms of two chunks, from the chunk `term` on. `of_a`: as MMA's a has them, else as two of its
  // b. `own_in_lines`: the former are lines. `of_values`: the terms are the steps that a thread has
  // values of, as OnlineElements::ValuesOf has them.
  ValueId Fragment(size_t index, ValueId stage, ValueId own, ValueId term, bool of_a,
                   bool own_in_lines, bool of_values = false);

 private:
  int64_t OwnOf(const OnlineMatrix& matrix) const {
    return matrix.of_rows ? tile_.rows() : tile_.steps;
  }
  int64_t LengthOf(const OnlineMatrix& matrix) const {
    return matrix.across ? OwnOf(matrix) : OnlinePadded(matrix.width);
  }
  int64_t StageElements(const OnlineMatrix& matrix) const {
    return OwnOf(matrix) * OnlinePadded(matrix.width);
  }
  ValueId ElementOf(const OnlineMatrix& matrix, ValueId stage, ValueId line, ValueId low,
                    ValueId chunk);
  void Copy(size_t index, ValueId number, ValueId stage, ValueId line, ValueId place);
  void Unpack(size_t index, ValueId number, ValueId line, ValueId place, ValueId element);
  ValueId Elements(size_t index, ValueId stage, ValueId own, ValueId term, bool of_a,
                   bool own_in_lines, bool of_values);

  PointLowering& point_;
  ProgramBuilder& b_;
  OpenRanges& ranges_;
  const OnlinePlan& plan_;
  const OnlineTile& tile_;
  const int64_t chunk_;  // elements
  ValueId thread_ = -1, lane_ = -1, origin_ = -1, steps_ = -1;
  std::vector<ValueId> memory_;  // by matrix
};

}  // namespace outboard::program
