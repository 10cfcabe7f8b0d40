// Grids of several rows of blocks (GridShape): the block's number, and who has nothing to do.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/render/llvm/gpu_printer.h"

namespace outboard::render {

using llvm::Value;
using program::Grid;
using program::Instruction;

Value* GpuPrinter::Row() {
  return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y, {}, {});
}

// Before anything else: what follows relies on the number being one of the program's.
void GpuPrinter::LeaveBehindGrid() {
  if (grid_.rows == 1) return;
  const auto wide = [&](int64_t number) { return b_.getInt64(static_cast<uint64_t>(number)); };
  Value* const first = b_.CreateMul(b_.CreateZExt(Row(), b_.getInt64Ty()), wide(grid_.columns));
  block_ = b_.CreateAdd(first, b_.CreateZExt(Number(Grid::kBlock), b_.getInt64Ty()));
  llvm::BasicBlock *const leaves = NewBlock("leaves"), *const stays = NewBlock("stays");
  b_.CreateCondBr(b_.CreateICmpULT(block_, wide(program_.Extent(Grid::kBlock))), stays, leaves);
  b_.SetInsertPoint(leaves);
  b_.CreateRetVoid();
  b_.SetInsertPoint(stays);
}

Value* GpuPrinter::Special(ValueId n) {
  const Instruction& i = at(n);
  if (i.imm[1] == 1) return Printed(b_.getInt32(0));
  const auto axis = static_cast<Grid>(i.imm[0]);
  if (axis != Grid::kBlock || block_ == nullptr) return Printed(Number(axis));
  return IsPrintedSmall(n) ? b_.CreateTrunc(block_, b_.getInt32Ty()) : block_;
}

}  // namespace outboard::render
