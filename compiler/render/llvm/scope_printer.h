// Loops and branches of a program as LLVM's basic blocks: what the printers for all processors have
// in common. Values, memories and masks differ too much to be shared.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <vector>

#include "compiler/program/program.h"

namespace outboard::render {

class ScopePrinter {
 protected:
  // Counters of a program's loops have 32 bits where these suffice, or 64.
  enum class Counters { kNarrow, kWide };
  ScopePrinter(llvm::LLVMContext& context, Counters counters) : b_(context), counters_(counters) {}

  // Opens a loop over [begin, end), of one integer type, and returns its counter. `sure`: begin is
  // known to be below end.
  llvm::Value* OpenLoop(llvm::Value* begin, llvm::Value* end, bool sure);
  // The same for the instruction `loop`, whose limit, unless null, has the value `limit`. A loop of
  // one pass has no blocks. Returns an i64; of narrow counters an i32 where these suffice.
  llvm::Value* OpenLoopOf(const program::Instruction& loop, llvm::Value* limit);
  // Returns the jump back; null where the loop has no blocks.
  llvm::BranchInst* CloseLoop();
  void OpenIf(llvm::Value* condition);
  void CloseIf();
  // A block of the function that is being printed.
  llvm::BasicBlock* NewBlock(const char* name);

  llvm::IRBuilder<> b_;

 private:
  struct Open {
    llvm::BasicBlock* body = nullptr;  // null: a loop of one pass
    llvm::BasicBlock* exit = nullptr;
    llvm::PHINode* counter = nullptr;  // of a loop
    llvm::Value* end = nullptr;
  };
  const Counters counters_;
  std::vector<Open> open_;
};

}  // namespace outboard::render
