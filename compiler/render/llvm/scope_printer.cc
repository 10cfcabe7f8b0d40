#include "compiler/render/llvm/scope_printer.h"

namespace outboard::render {

using llvm::Value;

llvm::BasicBlock* ScopePrinter::NewBlock(const char* name) {
  return llvm::BasicBlock::Create(b_.getContext(), name, b_.GetInsertBlock()->getParent());
}

Value* ScopePrinter::OpenLoop(Value* begin, Value* end, bool sure) {
  Open open{.body = NewBlock("loop"), .exit = NewBlock("done"), .end = end};
  llvm::BasicBlock* const before = b_.GetInsertBlock();
  if (sure) {
    b_.CreateBr(open.body);
  } else {
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), open.body, open.exit);
  }
  b_.SetInsertPoint(open.body);
  open.counter = b_.CreatePHI(begin->getType(), 2);
  open.counter->addIncoming(begin, before);
  open_.push_back(open);
  return open.counter;
}

Value* ScopePrinter::OpenLoopOf(const program::Instruction& loop, Value* limit) {
  if (loop.imm[0] == 1 && limit == nullptr) {
    open_.push_back({});
    return counters_ == Counters::kWide ? b_.getInt64(0) : b_.getInt32(0);
  }
  Value* end = b_.getInt64(static_cast<uint64_t>(loop.imm[0]));
  if (limit != nullptr) end = b_.CreateSelect(b_.CreateICmpSLT(limit, end), limit, end);
  const bool sure = limit == nullptr && loop.imm[0] > 0;
  if (counters_ == Counters::kWide || loop.imm[0] > INT32_MAX)
    return OpenLoop(b_.getInt64(0), end, sure);
  end = b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, end, b_.getInt64(0)),
                       b_.getInt32Ty());
  return OpenLoop(b_.getInt32(0), end, sure);
}

llvm::BranchInst* ScopePrinter::CloseLoop() {
  const Open open = open_.back();
  open_.pop_back();
  if (open.body == nullptr) return nullptr;
  Value* const next =
      b_.CreateAdd(open.counter, llvm::ConstantInt::get(open.counter->getType(), 1));
  open.counter->addIncoming(next, b_.GetInsertBlock());
  llvm::BranchInst* const back =
      b_.CreateCondBr(b_.CreateICmpSLT(next, open.end), open.body, open.exit);
  b_.SetInsertPoint(open.exit);
  return back;
}

void ScopePrinter::OpenIf(Value* condition) {
  const Open open{.body = NewBlock("then"), .exit = NewBlock("join")};
  b_.CreateCondBr(condition, open.body, open.exit);
  b_.SetInsertPoint(open.body);
  open_.push_back(open);
}

void ScopePrinter::CloseIf() {
  const Open open = open_.back();
  open_.pop_back();
  b_.CreateBr(open.exit);
  b_.SetInsertPoint(open.exit);
}

}  // namespace outboard::render
