// What threads hold of matrices for AMD's units (AmdElement in compiler/program/program.h), loaded
// from memory of the block.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "compiler/matrix_unit.h"
#include "compiler/program/program.h"

namespace outboard::program {

struct AmdOperand {
  ValueId memory = -1;
  DType dtype = DType::kVoid;
  int64_t chunk = 1;    // elements that lie side by side
  bool across = false;  // a line has elements of one step, else of one row or column
  // The first element of a chunk of a line; `low` is the line's number modulo 8.
  absl::FunctionRef<ValueId(ValueId line, ValueId low, ValueId chunk)> element;
};

// A thread's lanes of the operand: of the row or column `along`, from `first_step` on, the steps of
// one product.
ValueId LoadAmdOperand(ProgramBuilder& b, MatrixUnit unit, const AmdOperand& operand, ValueId lane,
                       ValueId along, int64_t first_step);

// The row of a thread's sum `lane`, of 16, but for what `FirstAmdRow` says of the thread. The
// column is the thread's number modulo 16.
inline int64_t AmdRow(MatrixUnit unit, int64_t lane) {
  return AmdElement(unit, MmaOperand::kC, 0, static_cast<int>(lane)).row;
}
ValueId FirstAmdRow(ProgramBuilder& b, MatrixUnit unit, ValueId lane);

}  // namespace outboard::program
