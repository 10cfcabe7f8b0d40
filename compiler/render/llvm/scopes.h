// The open loops and branches of the function being generated, and the block where code of each is
// appended.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"

namespace outboard::render {

// A stack of scopes: 0 is the function; each open loop or branch adds one. A scope's code so far
// ends in a block; while an inner scope is open, code for the outer one goes before the jump into
// the inner one.
class Scopes {
 public:
  using Key = std::pair<const UOp*, uint64_t>;  // a node, and the pieces of the enclosing tiles

  struct Scope {
    llvm::BasicBlock* block = nullptr;
    absl::flat_hash_map<Key, llvm::Value*> values;           // looked up, never iterated
    std::map<std::vector<uint64_t>, llvm::Value*> pointers;  // see memory.cc
  };

  Scopes(llvm::IRBuilder<>& builder, llvm::BasicBlock* entry) : b_(builder) { Push(entry); }

  int current() const { return static_cast<int>(scopes_.size()) - 1; }
  Scope& at(int scope) { return scopes_[scope]; }
  // Directs further code to the end of `scope`.
  void Enter(int scope);
  void EnterCurrent() { Enter(current()); }

  // for (i = begin; i < end; i += step) in a new scope. `sure`: it runs at least once.
  llvm::Value* OpenLoop(llvm::Value* begin, llvm::Value* end, int64_t step, bool sure);
  void CloseLoop();
  // if (condition) in a new scope; Else, if called, starts the else branch.
  void OpenIf(llvm::Value* condition);
  void Else();
  void CloseIf();

 private:
  struct Open {
    llvm::BasicBlock* body;
    llvm::BasicBlock* exit;
    llvm::BasicBlock* other;  // of an if: start of its else branch; null once that is open
    llvm::PHINode* counter;   // of a loop
    llvm::Value* end;
    int64_t step;
  };

  void Push(llvm::BasicBlock* block);
  llvm::BasicBlock* NewBlock(const char* name);

  llvm::IRBuilder<>& b_;
  std::vector<Scope> scopes_;
  std::vector<Open> open_;
};

}  // namespace outboard::render
