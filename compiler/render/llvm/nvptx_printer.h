// The state of printing one program for a GPU. A scope of the program is a loop or branch of basic
// blocks. Threads of a GPU have no vectors: a value of several lanes is as many LLVM values.
//
// Private memory is one variable for each element, of which LLVM makes registers; an index that is
// no constant selects among them. A thread's stack is memory behind all caches, so nothing is left
// to it. Accesses with a mask are branches: an address that is chosen by a mask would have to be
// valid in any of the machine's address spaces.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "compiler/program/program.h"
#include "compiler/render/llvm/alu.h"
#include "compiler/render/llvm/value_bounds.h"
#include "compiler/target.h"

namespace outboard::render {

class NvptxPrinter {
 public:
  NvptxPrinter(const program::Program& program, const Target& target, llvm::Module& module);

  // Adds the kernel `symbol` to the module. Errors: UNIMPLEMENTED, as NvptxRenderer::Render.
  absl::Status Run(const std::string& symbol);

 private:
  using ValueId = program::ValueId;
  using Values = absl::InlinedVector<llvm::Value*, 2>;  // one for each lane
  using Elements = std::vector<llvm::Value*>;           // variables of a private memory

  absl::Status Supports() const;
  void OpenMemories();
  void Print(ValueId n);

  // ---- scopes
  void OpenLoop(ValueId n);
  void CloseLoop();
  void OpenIf(llvm::Value* condition);
  void CloseIf();
  llvm::BasicBlock* NewBlock(const char* name);

  // ---- values
  Values Compute(ValueId n);
  Values Arithmetic(ValueId n);
  llvm::Value* SumWithProduct(ValueId n, int lane);  // null: no product that it may keep exact
  llvm::Value* NarrowDivision(ValueId n, int lane);
  Values Bitcast(ValueId n);

  // ---- matrices and asynchronous copies (nvptx_matrix.cc)
  Values MatrixProduct(ValueId n);
  Values LoadMatrices(ValueId n);
  llvm::Value* Pair(ValueId n, int lane);  // two small floats in 32 bits
  bool IsAsynchronous(const program::Instruction& copy) const;
  void Copy(ValueId n);
  void CopyAsynchronously(ValueId n);
  void Await(ValueId n);

  llvm::Value* Lane(ValueId n, int lane) const {
    const Values& lanes = values_[n];
    return lanes[lanes.size() == 1 ? 0 : static_cast<size_t>(lane)];
  }

  // ---- memory
  bool IsPrivate(ValueId memory) const { return privates_.contains(memory); }
  llvm::Value* Index(ValueId index, int lane);
  llvm::Value* Address(ValueId memory, llvm::Value* index);
  llvm::Value* LoadElement(ValueId memory, llvm::Value* index);
  void StoreElement(ValueId memory, llvm::Value* index, llvm::Value* value);
  llvm::Value* LoadPrivate(const Elements& elements, llvm::Value* index);
  void StorePrivate(const Elements& elements, llvm::Value* index, llvm::Value* value,
                    llvm::Value* condition);
  Values Load(ValueId n);
  void Store(ValueId n);

  // ---- sm_90a (nvptx_hopper.cc)
  void AddMaps();          // after the kernel's other parameters
  void OpenBlockMemory();  // all of it in one piece, whose size the launch sets
  void PrintHopper(ValueId n);
  llvm::Value* Asm(llvm::Type* result, const std::string& text, const std::string& constraints,
                   llvm::ArrayRef<llvm::Value*> args);
  void WithAccumulators(llvm::ArrayRef<ValueId> memories, const std::string& text,
                        llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* BlockAddress(ValueId memory, ValueId index);  // an i32
  llvm::Value* MatrixDescriptor(ValueId memory, ValueId index, int64_t leading);
  void BoxCopy(ValueId n);
  void GroupProduct(ValueId n);

  // Lanes whose masks are one value are guarded by one branch; calls `body` with their range.
  void Guarded(ValueId mask, int lanes,
               absl::FunctionRef<void(int begin, int end, llvm::Value* condition)> body);

  const program::Instruction& at(ValueId n) const { return program_.code[n]; }

  struct Open {
    llvm::BasicBlock* body = nullptr;
    llvm::BasicBlock* exit = nullptr;
    llvm::PHINode* counter = nullptr;  // of a loop
    llvm::Value* end = nullptr;
  };

  const program::Program& program_;
  const Target& target_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  AluEmitter alu_;
  const std::vector<ValueBounds> bounds_;
  llvm::Function* kernel_ = nullptr;
  llvm::GlobalVariable* block_memory_ = nullptr;  // of kernels for sm_90a
  std::vector<Values> values_;
  absl::flat_hash_map<ValueId, llvm::Value*> bases_;  // of buffers and shared memory
  absl::flat_hash_map<ValueId, Elements> privates_;
  absl::flat_hash_map<ValueId, Values> pairs_;  // of LDMATRIX: its registers, two numbers each
  std::vector<Open> open_;
};

}  // namespace outboard::render
