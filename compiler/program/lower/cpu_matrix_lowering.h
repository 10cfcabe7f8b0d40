// Sums of products of bf16 by instructions that a processor has for them
// (compiler/optimize/operands/cpu_matrix_unit.h). The sums of up to four squares of 16 rows by 16
// columns lie in tiles, or in vectors of private memory; a result is read from private memory.
//
//   cpu_matrix_sums.cc      the sums: Reduce
//   cpu_matrix_operands.cc  copies of their operands, in pairs of steps: Pack
#pragma once

#include <vector>

#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/operands/staging.h"
#include "compiler/program/lower/open_ranges.h"
#include "compiler/program/program.h"

namespace outboard::program {

class Lowering;
struct Staged;

class CpuMatrixLowering {
 public:
  // Allocates the unit's tiles, if the plan uses them. Both outlive this.
  CpuMatrixLowering(Lowering& lowering, const codegen::LoopPlan& plan);

  // Computes the sum of a group whose plan has a matrix unit, of the tile that is open.
  void Reduce(int group);
  // Copies an operand for it, along the dimensions `order` from number `next` on. Recursion depth:
  // the number of dimensions.
  void Pack(const Staged& staged, const std::vector<const codegen::StageDim*>& order,
            size_t next = 0);

 private:
  struct Sums;
  struct Square;
  // Recursion depth: the number of the group's loops.
  void Loops(const Sums& sums, size_t level);
  void TileStep(const Sums& sums);
  void VectorStep(const Sums& sums);
  void PackSquare(const Staged& staged, const Square& square);

  Lowering& lowering_;
  const LoopNest& kernel_;
  const codegen::LoopPlan& plan_;
  ProgramBuilder& b_;
  OpenRanges& ranges_;
  std::vector<ValueId> tiles_;
};

}  // namespace outboard::program
