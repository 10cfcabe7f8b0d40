#include "compiler/render/llvm/scopes.h"

#include "base/check.h"

namespace outboard::render {

using llvm::BasicBlock;
using llvm::Value;

void Scopes::Push(BasicBlock* block) {
  scopes_.emplace_back();
  scopes_.back().block = block;
  EnterCurrent();
}

BasicBlock* Scopes::NewBlock(const char* name) {
  return BasicBlock::Create(b_.getContext(), name, scopes_[0].block->getParent());
}

void Scopes::Enter(int scope) {
  BasicBlock* const block = scopes_[scope].block;
  if (llvm::Instruction* const jump = block->getTerminator()) {
    b_.SetInsertPoint(jump);
  } else {
    b_.SetInsertPoint(block);
  }
}

Value* Scopes::OpenLoop(Value* begin, Value* end, int64_t step, bool sure) {
  EnterCurrent();
  Open open{NewBlock("loop"), NewBlock("done"), nullptr, nullptr, end, step};
  BasicBlock* const before = scopes_.back().block;
  if (sure) {
    b_.CreateBr(open.body);
  } else {
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), open.body, open.exit);
  }
  Push(open.body);
  open.counter = b_.CreatePHI(b_.getInt64Ty(), 2);
  open.counter->addIncoming(begin, before);
  open_.push_back(open);
  return open.counter;
}

void Scopes::CloseLoop() {
  const Open open = open_.back();
  open_.pop_back();
  EnterCurrent();
  Value* const next = b_.CreateAdd(open.counter, b_.getInt64(open.step));
  open.counter->addIncoming(next, scopes_.back().block);
  b_.CreateCondBr(b_.CreateICmpSLT(next, open.end), open.body, open.exit);
  scopes_.pop_back();
  scopes_.back().block = open.exit;
  EnterCurrent();
}

void Scopes::OpenIf(Value* condition) {
  EnterCurrent();
  Open open{NewBlock("then"), NewBlock("join"), NewBlock("else"), nullptr, nullptr, 0};
  b_.CreateCondBr(condition, open.body, open.other);
  open_.push_back(open);
  Push(open.body);
}

void Scopes::Else() {
  Open& open = open_.back();
  OB_CHECK(open.other != nullptr);
  EnterCurrent();
  b_.CreateBr(open.exit);
  scopes_.pop_back();
  Push(open.other);
  open.other = nullptr;
}

void Scopes::CloseIf() {
  const Open open = open_.back();
  open_.pop_back();
  EnterCurrent();
  b_.CreateBr(open.exit);
  scopes_.pop_back();
  if (open.other != nullptr) {
    b_.SetInsertPoint(open.other);
    b_.CreateBr(open.exit);
  }
  scopes_.back().block = open.exit;
  EnterCurrent();
}

}  // namespace outboard::render
