// The state of printing one program for a GPU. A scope of the program is a loop or branch of basic
// blocks. Threads of a GPU have no vectors: a value of several lanes is as many LLVM values.
//
// Private memory is one variable for each element, of which LLVM makes registers; an index that is
// no constant selects among them. A thread's stack is memory behind all caches, so nothing is left
// to it. Accesses with a mask are branches: an address that is chosen by a mask would have to be
// valid in any of the machine's address spaces.
#pragma once

#include <llvm/IR/Module.h>

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "compiler/program/program.h"
#include "compiler/render/gpu_support.h"
#include "compiler/render/launch_shape.h"
#include "compiler/render/llvm/alu.h"
#include "compiler/render/llvm/scope_printer.h"
#include "compiler/render/value_bounds.h"
#include "compiler/target.h"

namespace outboard::render {

// The integer type of the same width.
inline DType BitsOf(DType dtype) {
  switch (ByteWidth(dtype)) {
    case 1: return DType::kU8;
    case 2: return DType::kU16;
    case 4: return DType::kU32;
    default: return DType::kU64;
  }
}

class GpuPrinter : protected ScopePrinter {
 public:
  GpuPrinter(const program::Program& program, const Target& target, const GridShape& grid,
             llvm::Module& module);
  virtual ~GpuPrinter() = default;

  // Adds the kernel `symbol` to the module. Errors: UNIMPLEMENTED, as GpuRenderer::Render.
  absl::Status Run(const std::string& symbol);

 protected:
  using ValueId = program::ValueId;
  using Values = absl::InlinedVector<llvm::Value*, 2>;  // one for each lane

  // ---- what is not the same on all GPUs
  // Whether there are the matrix units and copies that the program uses. Errors: UNIMPLEMENTED.
  virtual absl::Status CheckUnits() const = 0;
  // Makes kernel_ a kernel of blocks of `threads`.
  virtual void MarkKernel(int64_t threads) = 0;
  // The thread's number, or the block's place along the grid's first axis, as an i32; and that
  // along the second axis.
  virtual llvm::Value* Number(program::Grid axis) = 0;
  virtual llvm::Value* Row() = 0;
  virtual void Barrier() = 0;
  virtual Values Shuffle(ValueId n) = 0;
  virtual Values MatrixProduct(ValueId n) = 0;
  // `value` as others have it, which `exchange` asks of them for 32 bits.
  llvm::Value* Exchanged(llvm::Value* value,
                         absl::FunctionRef<llvm::Value*(llvm::Value* bits)> exchange);

  // The value of a lane, of the type that the instruction says.
  llvm::Value* Lane(ValueId n, int lane);
  // The lower 32 bits of an integer.
  llvm::Value* Low(ValueId n, int lane);
  const program::Instruction& at(ValueId n) const { return program_.code[n]; }

  const program::Program& program_;
  const bool small_indices_;
  const Target& target_;
  const GridShape grid_;
  llvm::Module& module_;
  AluEmitter alu_;
  llvm::Function* kernel_ = nullptr;

 private:
  using Elements = std::vector<llvm::Value*>;  // variables of a private memory

  void OpenMemories();
  void LeaveBehindGrid();  // blocks of a grid in rows that the program does not have
  void Print(ValueId n);

  // ---- values
  Values Compute(ValueId n);
  llvm::Value* Special(ValueId n);
  Values Arithmetic(ValueId n);
  llvm::Value* SumWithProduct(ValueId n, int lane);  // null: no product that it may keep exact
  // An i64 may be printed as an i32.
  llvm::Value* AsPrinted(ValueId n, int lane) const {
    const Values& lanes = values_[n];
    return lanes[lanes.size() == 1 ? 0 : static_cast<size_t>(lane)];
  }
  bool IsSmall(ValueId n) const;  // an i64 that fits in an i32
  bool IsPrintedSmall(ValueId n) const { return small_indices_ && IsSmall(n); }
  bool IsComputedSmall(ValueId n) const;
  llvm::Value* Printed(llvm::Value* index);  // an i32 that is not negative, as indices are printed
  llvm::Value* SmallArithmetic(ValueId n, int lane, const QuotientFacts& known);
  Values Bitcast(ValueId n);

  // ---- memory
  bool IsPrivate(ValueId memory) const { return privates_.contains(memory); }
  llvm::Value* Index(ValueId index, int lane);
  llvm::Value* Address(ValueId memory, ValueId index, int lane);
  llvm::Value* LoadPrivate(const Elements& elements, llvm::Value* index);
  void StorePrivate(const Elements& elements, llvm::Value* index, llvm::Value* value,
                    llvm::Value* condition);
  Values Load(ValueId n);
  void Store(ValueId n);
  void Copy(ValueId n);  // by loads and stores: all of it has arrived then
  static constexpr int kAccessBytesMax = 16;
  // Of the lanes from `begin` on that lie next to each other and are aligned so: how many one
  // access may have, up to `end`.
  int Together(ValueId memory, ValueId index, int begin, int end) const;
  llvm::Align AlignOf(ValueId memory, ValueId index, int lane) const;
  llvm::Value* Unpacked(llvm::Value* word, int k, DType dtype);
  llvm::Value* PackedLanes(ValueId value, int lane, int count, DType dtype);
  void LoadLanes(ValueId memory, ValueId index, int begin, int end, Values& out);
  void StoreLanes(const program::Instruction& store, int begin, int end);

  // Lanes whose masks are one value are guarded by one branch; calls `body` with their range.
  void Guarded(ValueId mask, int lanes,
               absl::FunctionRef<void(int begin, int end, llvm::Value* condition)> body);

  const std::vector<ValueBounds> bounds_;
  const std::vector<int64_t> divisors_;
  llvm::Value* block_ = nullptr;  // its number, an i64, in a grid of several rows
  std::vector<Values> values_;
  absl::flat_hash_map<ValueId, llvm::Value*> bases_;  // of buffers and shared memory
  absl::flat_hash_map<ValueId, Elements> privates_;
};

}  // namespace outboard::render
