// The state of generating code for one kernel; kernel.h explains how the scope of each value is
// chosen.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/kernel/affine.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/optimize/operands/staging.h"
#include "compiler/render/llvm/alu.h"
#include "compiler/render/llvm/scopes.h"

namespace outboard::render {

// Selects one piece of each tile: byte i is the piece of the tile with number i.
using Coords = uint64_t;

class KernelEmitter {
 public:
  KernelEmitter(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                llvm::Module& module, llvm::Function* function);

  void Run();

 private:
  // A range while its loop is open.
  struct Bound {
    llvm::Value* base = nullptr;  // null: not open
    int scope = 0;
    const std::vector<codegen::Piece>* pieces = nullptr;
    int number = -1;   // of the tile, for Coords; -1 where there is one piece of 1
    int64_t step = 1;  // `base` is a multiple of it
  };
  // A longer block of a range while its loop is open: [begin, end) of the range's values.
  struct Block {
    llvm::Value* begin = nullptr;  // null: not open
    llvm::Value* end = nullptr;
    int scope = 0;
  };
  // Values and their coefficients, by the scope that they are known in.
  using TermsByScope = std::map<int, std::vector<std::pair<llvm::Value*, uint64_t>>>;

  // ---- loops (kernel.cc)
  void OpenTasks(llvm::Value* begin, llvm::Value* end);
  void TaskBlock(llvm::Value* task, size_t level,
                 std::vector<std::pair<llvm::Value*, bool>>& blocks);
  // Emits the code inside the first `level` output loops: copies, reductions, further loops.
  void Inside(size_t level);
  void Outputs(size_t level);
  void BindBlock(const codegen::Loop& loop, llvm::Value* begin);
  // The end of the range in this run; null if it is the extent.
  llvm::Value* EndOf(int range);
  // Calls `inside` once for the blocks of a tile's loop, if it has any, and once for its rest, each
  // time with the tile's range bound.
  void OverTile(const codegen::Tile& tile, const std::function<void()>& inside);
  void Bind(const codegen::Tile& tile, llvm::Value* base,
            const std::vector<codegen::Piece>& pieces);
  void Unbind(int range);
  void GroupsAt(size_t level);
  void Stores();

  // ---- reductions (reduce.cc)
  struct Accumulators;
  void Group(int index);
  void GroupsInside(codegen::RangeSet own, const std::vector<const UOp*>& roots);
  void ReduceLoops(Accumulators& acc, size_t level);
  void ReduceStep(Accumulators& acc, size_t level);
  void ReduceBody(Accumulators& acc);
  bool ZeroInIdleLanes(const UOp* term, int range, int depth = 4) const;
  llvm::Value* FoldLanes(Op op, DType dtype, llvm::Value* value);

  // ---- values (value.cc)
  llvm::Value* Emit(const UOp* node,
                    Coords coords);  // may be one element where `node` does not vary in the lanes
  llvm::Value* EmitLanes(const UOp* node, Coords coords, int lanes);
  llvm::Value* Compute(const UOp* node, Coords coords);  // its sources are already emitted
  llvm::Value* ComputeAlu(const UOp* node, Coords coords, int lanes);
  llvm::Value* RangeValue(const UOp* node, Coords coords, int lanes);
  llvm::Value* Find(const UOp* node, Coords coords);
  void Needs(const UOp* node, std::vector<const UOp*>& needs);
  llvm::Value* Splat(llvm::Value* value, int lanes);
  // Integers of i64 that are known to fit are i32 in vectors: index arithmetic takes half the
  // registers.
  DType LaneType(const UOp* node, int lanes) const;
  llvm::Value* AsType(llvm::Value* value, DType type);  // i32 <-> i64

  // ---- staged loads and panels (stage.cc)
  struct Staged {
    const UOp* value = nullptr;
    codegen::StageLayout layout;
    int64_t first_byte = 0;
    llvm::Value* memory = nullptr;
  };
  void OpenScratch();
  void StagesAt(size_t level);
  void EndStagesAt(size_t level);
  void PanelsAt(size_t level, size_t group);
  void CopyStage(int stage, const std::vector<const codegen::StageDim*>& order, size_t next);
  llvm::Value* StagedPointer(int stage, Coords coords);
  llvm::Value* LoadStaged(const UOp* node, Coords coords, int lanes);

  // ---- sums of products of bf16 (matrix_unit.cc), and the copies of operands (pack.cc)
  struct CoreSums;
  void OpenTiles();
  void CloseTiles();
  bool UsesTiles() const;
  void TensorCoreGroup(int index);
  void TensorCoreLoops(CoreSums& sums, size_t level);
  void TileStep(const CoreSums& sums);
  void VectorStep(const CoreSums& sums);
  Coords PointOf(const codegen::TensorCore& core, size_t row, size_t column) const;
  int StageOf(const UOp* load) const;
  // Elements from one pair of steps of the columns' operand to the next.
  int64_t PairElements(int columns) const;
  void PackOperand(int stage, const std::vector<const codegen::StageDim*>& order, size_t next);
  void PackSquare(int stage, int across, int inner, bool along);
  // Calls `inside` with a bound range split into other pieces of the same values.
  void WithPieces(int range, const std::vector<codegen::Piece>& pieces,
                  const std::function<void()>& inside);

  // ---- memory (memory.cc)
  llvm::Value* Load(const UOp* node, Coords coords, int lanes);
  void Store(const UOp* node, Coords coords, llvm::Value* value);
  // The distance of each lane's element from that of lane 0 if all are constants; else empty.
  std::vector<int64_t> LaneOffsets(const UOp* index, Coords coords, int lanes, int range);
  // Returns c if `term` is `range` / c or `range` % c and the first lane is known to be at a
  // multiple of c; else 0.
  int64_t DivisorOf(const UOp* term, Coords coords, int range) const;
  llvm::Value* LoadLanes(const UOp* node, Coords coords, int lanes, int range, llvm::Value* gate);
  // Returns the address of the first lane's element plus `extra` elements. Excludes terms that
  // differ between lanes in a way that LaneOffsets does not handle.
  llvm::Value* Pointer(const UOp* index, Coords coords, int range, int64_t extra);
  // Returns `pointer` advanced by `terms` and `constant`, in units of `element`; each term is added
  // in its scope.
  llvm::Value* PointerBy(llvm::Value* pointer, llvm::Type* element, const TermsByScope& terms,
                         uint64_t constant);
  llvm::Value* LanePointers(const UOp* index, Coords coords, int lanes, int range);
  llvm::Value* Gate(const UOp* gate, Coords coords);  // null: always true

  // ---- dependences
  int ScopeOf(codegen::RangeSet deps) const;
  Coords MaskOf(codegen::RangeSet deps) const;
  const codegen::Piece& PieceOf(int range, Coords coords) const;
  int LanesOf(codegen::RangeSet deps, Coords coords, int* range = nullptr) const;
  std::vector<Coords> Points(codegen::RangeSet ranges) const;
  llvm::Value* ActiveMask(int lanes, int active);

  const codegen::LoopNest& kernel_;
  const codegen::LoopPlan& plan_;
  llvm::Module& module_;
  llvm::Function* function_;
  llvm::IRBuilder<> b_;
  AluEmitter alu_;
  std::unique_ptr<Scopes> scopes_;
  codegen::AffineForms forms_;
  std::vector<Bound> bound_;          // by range
  std::vector<Block> block_;          // by range
  std::vector<int> range_of_number_;  // of open tiles
  absl::flat_hash_set<const UOp*>
      holds_;                        // gates that branches around the current place have checked
  llvm::Value* discard_ = nullptr;   // memory that a gated-off store writes instead
  llvm::Value* zeros_ = nullptr;     // memory that a gated-off load reads instead
  std::vector<size_t> group_level_;  // output loops that must be open for a group
  std::vector<codegen::PanelPlace> panels_;      // as in the plan
  std::vector<Staged> stages_;                   // as in the plan, then the panels
  bool packing_ = false;                         // see PackSquare
  absl::flat_hash_map<const UOp*, int> staged_;  // loads and panels copied in the enclosing scopes
};

// Returns the conjuncts of `gate`.
std::vector<const UOp*> Conjuncts(const UOp* gate);

}  // namespace outboard::render
