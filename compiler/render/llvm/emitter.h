// The state of writing one kernel; see llvm_kernel.h for how code finds its place.
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
#include "compiler/optimize/panel.h"
#include "compiler/optimize/staging.h"
#include "compiler/render/llvm/alu.h"
#include "compiler/render/llvm/scopes.h"

namespace outboard::render {

// One piece of each tile: byte i is the piece of the tile that has number i.
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

  // ---- loops (llvm_kernel.cc)
  void OpenTasks(llvm::Value* begin, llvm::Value* end);
  void TaskBlock(llvm::Value* task, size_t level,
                 std::vector<std::pair<llvm::Value*, bool>>& blocks);
  // What is inside of the first `level` output loops: copies, reductions, further loops.
  void Inside(size_t level);
  void Outputs(size_t level);
  void BindBlock(const codegen::Loop& loop, llvm::Value* begin);
  // The end of the range at this run; null where it has none but its extent.
  llvm::Value* EndOf(int range);
  // `inside` once for the blocks of a tile's loop, if it has any, and once for its rest, each time
  // with the tile's range bound.
  void OverTile(const codegen::Tile& tile, const std::function<void()>& inside);
  void Bind(const codegen::Tile& tile, llvm::Value* base,
            const std::vector<codegen::Piece>& pieces);
  void Unbind(int range);
  void GroupsAt(size_t level);
  void Stores();

  // ---- reductions (llvm_reduce.cc)
  struct Accumulators;
  void Group(int index);
  void GroupsInside(codegen::RangeSet own, const std::vector<const UOp*>& roots);
  void ReduceLoops(Accumulators& acc, size_t level);
  void ReduceStep(Accumulators& acc, size_t level);
  void ReduceBody(Accumulators& acc);
  bool ZeroInIdleLanes(const UOp* term, int range, int depth = 4) const;
  llvm::Value* FoldLanes(Op op, DType dtype, llvm::Value* value);

  // ---- values (llvm_value.cc)
  llvm::Value* Emit(const UOp* node,
                    Coords coords);  // may be one element where `node` does not vary in the lanes
  llvm::Value* EmitLanes(const UOp* node, Coords coords, int lanes);
  llvm::Value* Compute(const UOp* node, Coords coords);  // what it needs is there
  llvm::Value* ComputeAlu(const UOp* node, Coords coords, int lanes);
  llvm::Value* RangeValue(const UOp* node, Coords coords, int lanes);
  llvm::Value* Find(const UOp* node, Coords coords);
  void Needs(const UOp* node, std::vector<const UOp*>& needs);
  llvm::Value* Splat(llvm::Value* value, int lanes);
  // Integers of i64 that are known to fit are kept as i32 in vectors: index arithmetic in half the
  // registers.
  DType LaneType(const UOp* node, int lanes) const;
  llvm::Value* AsType(llvm::Value* value, DType type);  // i32 <-> i64

  // ---- staged loads and panels (llvm_stage.cc)
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

  // ---- sums of products of bf16 (llvm_tensor_core.cc), and the copies of operands (llvm_pack.cc)
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
  // `inside` with a bound range in other pieces of the same values.
  void WithPieces(int range, const std::vector<codegen::Piece>& pieces,
                  const std::function<void()>& inside);

  // ---- memory (llvm_memory.cc)
  llvm::Value* Load(const UOp* node, Coords coords, int lanes);
  void Store(const UOp* node, Coords coords, llvm::Value* value);
  // How far the elements of lanes are from that of lane 0, where that is a matter of constants;
  // else empty.
  std::vector<int64_t> LaneOffsets(const UOp* index, Coords coords, int lanes, int range);
  // c where `term` is `range` / c or `range` % c and the first lane is known to be at a multiple of
  // c; else 0.
  int64_t DivisorOf(const UOp* term, Coords coords, int range) const;
  llvm::Value* LoadLanes(const UOp* node, Coords coords, int lanes, int range, llvm::Value* gate);
  // The address of the first lane's element, `extra` elements further. Of terms that differ from
  // lane to lane in another way than LaneOffsets knows, nothing is in it.
  llvm::Value* Pointer(const UOp* index, Coords coords, int range, int64_t extra);
  // `pointer` and as many `element`s further as terms and constant say, each term added in its
  // scope.
  llvm::Value* PointerBy(llvm::Value* pointer, llvm::Type* element, const TermsByScope& terms,
                         uint64_t constant);
  llvm::Value* LanePointers(const UOp* index, Coords coords, int lanes, int range);
  llvm::Value* Gate(const UOp* gate, Coords coords);  // null: always true

  // ---- what depends on what
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
  absl::flat_hash_map<const UOp*, int> staged_;  // what has been copied, around this place
};

// The conditions that `gate` joins by AND.
std::vector<const UOp*> Conjuncts(const UOp* gate);

}  // namespace outboard::render
