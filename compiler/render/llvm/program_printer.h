// The state of printing one program. A scope of the program is a loop or branch of basic blocks;
// a value is an LLVM value, so that whatever the program computes once is computed once.
//
// Addresses are built from the parts of an index: that of ADD(a, b) in a memory is the address of a
// plus b, made where the ADD stands. An index whose parts are ordered from outer to inner scopes
// leaves an inner loop with its own part only, and constants are added at the access.
#pragma once

#include <llvm/IR/Module.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "compiler/program/program.h"
#include "compiler/render/llvm/alu.h"
#include "compiler/render/llvm/scope_printer.h"
#include "compiler/render/value_bounds.h"

namespace outboard::render {

// Adds `void name(ptr buffers, i64 task_begin, i64 task_end)` to `module`, as compiled_kernel.h
// specifies; the program's blocks are the tasks. What stands before the first instruction that
// reads the block's number or stores to a buffer is the same in all blocks, and runs once per call.
// Errors: UNIMPLEMENTED  the program needs threads, memory of a block, or an instruction that has
//                        no form on x86-64; the message names it
absl::Status PrintProgram(const program::Program& program, const std::string& name,
                          llvm::Module& module);

class ProgramPrinter : private ScopePrinter {
 public:
  // The arguments of `function` are the buffers by slot, the VARs in the order of `vars`, and the
  // first task and the end of the tasks.
  ProgramPrinter(const program::Program& program, const std::vector<int64_t>& vars,
                 llvm::Module& module, llvm::Function* function);

  void Run();

 private:
  using ValueId = program::ValueId;

  // ---- what is needed of each instruction (print_program.cc)
  // Finds the values that are used other than as a part of an address, and the memories whose
  // addresses at an index are needed.
  void FindUses();
  void NeedAddress(ValueId memory, ValueId index);

  void Print(ValueId n);

  // ---- values (print_values.cc)
  llvm::Value* Compute(ValueId n);
  llvm::Value* Lanes(ValueId n);
  llvm::Value* Arithmetic(ValueId n);
  llvm::Value* Bitcast(ValueId n);
  llvm::Value* Dot(ValueId n);
  llvm::Value* Splat(llvm::Value* value, int lanes);
  // A vector made of lanes of at most two other vectors, and of constants where there is but one.
  struct Shuffle {
    ValueId first = -1;
    ValueId second = -1;
    std::vector<int> lanes;
  };
  std::optional<Shuffle> ShuffleOf(ValueId n) const;

  // ---- memory (print_memory.cc)
  struct Memory {
    llvm::Value* base = nullptr;
    llvm::Type* element = nullptr;
    bool is_private = false;
    bool as_register = false;  // elements are of the register's type, not of memory's
    int64_t elements = 0;      // that may be touched; those of a buffer are not known here
    int width = 1;             // bytes of an element
  };
  // An index of lanes as one scalar, or none, and a constant for each lane.
  struct LaneIndex {
    ValueId base = -1;  // -1: no scalar part
    std::vector<int64_t> offsets;
  };
  // A mask's conjuncts: scalars, constants of lanes, and what differs between lanes otherwise.
  struct Mask {
    std::vector<ValueId> uniform;
    std::vector<bool> on;  // empty: all lanes
    std::vector<ValueId> varying;

    bool all_on() const { return on.empty(); }
  };
  void OpenMemories();
  Mask MaskOf(ValueId mask) const;
  Mask PrintedMask(ValueId n) const;
  llvm::Value* Condition(const Mask& mask, int lanes);
  std::optional<LaneIndex> LaneIndexOf(ValueId index) const;
  bool IsZero(ValueId value) const;
  llvm::Value* Uniform(const Mask& mask);  // null: always on
  llvm::Value* LaneMask(const Mask& mask, int lanes, bool with_uniform);
  llvm::Constant* OnLanes(const std::vector<bool>& on, int lanes);
  // Returns the address of the element at `index` plus `extra`. `index` -1 is 0.
  llvm::Value* Address(ValueId memory, ValueId index, int64_t extra = 0);
  llvm::Value* Pointer(ValueId memory, ValueId index);
  void MakePointer(ValueId memory, ValueId index);
  llvm::Value* LanePointers(ValueId memory, ValueId index);
  llvm::Value* Load(ValueId n);
  llvm::Value* LoadOne(ValueId n, const Mask& mask);
  llvm::Value* LoadPrivate(ValueId n, const Mask& mask);
  llvm::Value* LoadLanes(ValueId n, const Mask& mask);
  // Stores to buffers wait until the scope ends or what they write may be read, so that loads of
  // the points of a tile, whose code is side by side, come first: in the order of memory, not of
  // points.
  void StoreLater(ValueId n);
  void FlushStores();
  bool MayTouchPending(ValueId load) const;
  void Store(ValueId n);
  bool InPrivateReach(ValueId memory, ValueId index, int lanes, const Mask& mask) const;
  // The number if `index` is a constant.
  std::optional<int64_t> ConstantOf(ValueId index) const;

  // ---- matrix units (print_matrix.cc)
  void OpenTiles();
  void CloseTiles();
  void TileInstruction(ValueId n);

  const program::Instruction& at(ValueId n) const { return program_.code[n]; }
  llvm::Value* Of(ValueId n) const { return values_[n]; }

  const program::Program& program_;
  llvm::Module& module_;
  llvm::Function* function_;
  AluEmitter alu_;
  const std::vector<ValueBounds> bounds_;
  std::vector<int64_t> vars_;
  std::vector<bool> used_;
  std::vector<absl::InlinedVector<ValueId, 2>> addressed_;  // by index: its memories
  std::vector<llvm::Value*> values_;
  absl::flat_hash_map<ValueId, Memory> memories_;
  absl::flat_hash_map<std::pair<ValueId, ValueId>, llvm::Value*> pointers_;  // (memory, index)
  absl::flat_hash_map<ValueId, int> tiles_;                                  // by ALLOC
  std::vector<ValueId> pending_stores_;
  llvm::Value* task_ = nullptr;
  llvm::Value* zeros_ = nullptr;    // memory that a load reads whose mask is off in all lanes
  llvm::Value* discard_ = nullptr;  // memory that such a store writes
};

}  // namespace outboard::render
