// Lowers a kernel to loops. Every value is computed where all the loops that it depends on are
// open; the result of a reduction is stored in private memory. In the order of the calls:
//
//   RunPlan            the program of a plan (lower.cc): memory, the task's number, TaskLoops
//     TaskLoops        opens the block of each task range (lower_loops.cc), then, as each output
//                      loop inside does in its turn,
//       AtLevel        what belongs between two loops: MakeCopies (lower_copies.cc), ReductionsAt,
//                      OutputLoops, which opens the next loop, and innermost Stores
//         Reduce       a reduction (lower_reduce.cc): NewReduction, ReduceLoops over its tiles,
//                      ReduceBody in each step, PutResults
//         OnlineAt     instead, reductions that share one loop, with running maxima
//                      (lower_online.cc); lower_visible.cc says which of its steps are run
//   OverTile           calls back for the blocks of a tile, ForEachPoint for the points of those
//                      that are open (lower_loops.cc); there PointLowering emits values and stores
//
// Parts with a state of their own: BlockLowering (block_lowering.h) where the plan is of blocks of
// threads, CpuMatrixLowering (cpu_matrix_lowering.h) for sums of products by a processor's matrix
// unit. PlainLowering (lower_plain.cc) lowers kernels without a plan, by the same reductions.
//
// The order of a reduction's terms is the plan's: loops as they are nested, lanes apart, and at the
// end partial sums first to last, then lanes by halves.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/operands/online.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/optimize/operands/staging.h"
#include "compiler/program/expand.h"
#include "compiler/program/lower/block_lowering.h"
#include "compiler/program/lower/cpu_matrix_lowering.h"
#include "compiler/program/lower/point_lowering.h"
#include "compiler/program/program.h"

namespace outboard::program {

using codegen::GroupPlan;
using codegen::Loop;
using codegen::LoopPlan;
using codegen::ReduceGroup;

// Returns the type of a reduction's running value (docs/semantics.md, REDUCE).
inline DType SumType(DType dtype) { return codegen::JoinTypeOf(dtype); }

// A thread of a block writes out so many copies; of more it makes a loop, whose values do not stay
// in registers.
inline constexpr int64_t kCopiesWrittenOutMax = 16;

// The reductions of a group while they are computed.
struct OpenReduction {
  const ReduceGroup* group = nullptr;
  size_t index = 0;  // of it
  GroupPlan plan;
  RangeSet own = 0;               // the group's ranges
  std::vector<const UOp*> terms;  // by node of the group
  // Where a term is WHERE(gate, x, 0) in a sum: x is added where the gate's conditions hold.
  // Since a sum starts from +0, it is never -0, and adding 0 changes nothing: a branch may leave
  // the addition out.
  std::vector<std::vector<const UOp*>> conditions;
  int lanes = 1;                // of a reduced range that lies in lanes
  int active = 0;               // of those, in every piece; 0 where pieces differ
  int vector = -1;              // a range of results that lies in lanes
  std::vector<int> points;      // tiled ranges of results, the one in lanes last
  int64_t elements = 1;         // of these
  std::vector<ValueId> memory;  // by node: running values
};

// A value that is stored where few loops are open, and read inside of more: a copy of an operand, a
// panel, or what online reductions carry from one block of their loop to the next.
struct Staged {
  const UOp* value = nullptr;
  codegen::StageLayout layout;
  ValueId memory = -1;  // -1: nothing is there yet
};

class Lowering : public PointLowering {
 public:
  // `plan`, which outlives this, or null: plain loops in threads.
  Lowering(const LoopNest& kernel, const LoopPlan* plan);
  ~Lowering() override;

  // The program of the plan; once.
  Program RunPlan();

  // ---- loops (lower_loops.cc)
  // Calls `inside` once for the blocks of a tile, in a loop if there are several, and once for its
  // rest, each time with the range open.
  void OverTile(const Tile& tile, const std::function<void()>& inside);
  // Emits `body` for each point of the tiles of `ranges`, outermost first; the lanes of a vector
  // are the innermost loop.
  void ForEachPoint(const std::vector<int>& ranges, const std::function<void()>& body) {
    OverPoints(ranges, 0, body);
  }

  // ---- reductions (lower_reduce.cc)
  // Computes the reductions of a group, for all points of their ranges that are open.
  void Reduce(int group);
  // The terms of a step, added for each point.
  void ReduceBody(const OpenReduction& sums);
  // Of a point: partial sums and lanes as one value, not rounded yet.
  ValueId Folded(const OpenReduction& sums, size_t node);

  // ---- copies (lower_copies.cc)
  const Staged& StagedOf(const UOp* load) const;
  // The element of the first value of the block that is open.
  ValueId BlockOf(const Staged& staged, int64_t per_element = 1);
  // `lanes` elements of a memory from `index` on.
  ValueId VectorAt(ValueId memory, ValueId index, int lanes);

 protected:
  // memory[place] = memory[place] op value
  void Accumulate(Op op, ValueId memory, ValueId place, ValueId value) {
    b_.Store(memory, place, Combine(op, b_.Load(memory, place), value));
  }
  // Emits the reductions that `roots` are computed with and that depend on the loops `own`, inside
  // these.
  void GroupsWithin(RangeSet own, const std::vector<const UOp*>& roots);
  // All stores of the kernel but those that sum points, each for the points that it depends on.
  void Stores();
  bool OneBranchForAll(const std::vector<int>& points) const;

 private:
  // The steps of the loop of panels that are run for the tile of rows that is open: multiples of
  // every tile of that loop, but for the extent.
  struct Window {
    ValueId first = -1;  // -1: all steps
    ValueId end = -1;
  };

  // ---- loops of a plan
  void TaskLoops(size_t level, const std::vector<ValueId>& steps);
  void AtLevel(size_t level);
  // Panels wait for the groups before theirs only.
  void ReductionsAt(size_t level);
  // Recursion depth: the number of output loops.
  void OutputLoops(size_t level);
  void OpenTile(const Tile& tile, ValueId step, ValueId step_in_block,
                const std::vector<Piece>& pieces);
  bool LiesApartAsAWhole(const Tile& tile, const std::vector<Piece>& pieces) const;
  // OverTile for the part of the blocks that lies in the longer block that is open.
  void OverBlock(const Tile& tile, const LongBlock& block, const std::function<void()>& inside);
  // Recursion depth: the number of ranges.
  void OverPoints(const std::vector<int>& ranges, size_t next, const std::function<void()>& body);
  void OverLanes(const std::vector<int>& ranges, const std::function<void()>& body);
  // Calls `inside` for the open piece of odd vectors, once where it lies within the range as a
  // whole and once where it does in part; or, of sums, once. `most`: it mostly lies within.
  void InParts(int range, bool most, const std::function<void()>& inside);
  void AdaptLoad(const UOp* node, Instruction& load, ValueId& mask) override;

  // ---- which steps of a loop of panels are run (lower_visible.cc)
  // OverTile for the steps that are run.
  void OverWindow(const Tile& tile, const std::function<void()>& inside);
  void OpenWindow();
  // Of a row of the tile that is open: the least or the greatest value.
  ValueId Extreme(const codegen::RowForm& form, bool greatest);
  // Whether a guard is not 0 in a step outside of the window.
  ValueId GuardsFail(const Window& window);

  // ---- reductions
  // With memory of running values, which holds nothing yet.
  OpenReduction NewReduction(int group);
  // The element of the first lane of a running value of this point.
  ValueId PlaceOf(const OpenReduction& sums, ValueId partial);
  void PutResults(const OpenReduction& sums);
  // Recursion depth: the number of the group's loops, and of nested reductions.
  void ReduceLoops(const OpenReduction& sums, size_t level);
  void ReduceStep(const OpenReduction& sums, size_t level);
  bool CopiesFor(const OpenReduction& sums) const {
    return block_ != nullptr && block_->CopiesFor(sums);
  }
  bool AreKept(const OpenReduction& sums) const;
  bool ZeroInIdleLanes(const UOp* term, int range, int depth = 4) const;
  ValueId FoldLanes(Op op, ValueId value);

  // ---- copies of operands, and panels
  void OpenCopies();
  // Those of this level, between MakeCopies and EndCopies.
  void MakeCopies(size_t level);
  void EndCopies(size_t level);
  void PanelsAt(size_t level, size_t group);
  void MakePanel(size_t panel);
  void Allocate(Staged& staged);
  // From now on, and until Unstage, the value is read from staged_[index].
  void ReadStaged(const UOp* value, size_t index);
  void Unstage(const UOp* value);
  // Recursion depth: the number of dimensions.
  void CopyStage(const Staged& staged, const std::vector<const codegen::StageDim*>& order,
                 size_t next);
  struct Squares;
  std::optional<Squares> SquaresOf(const Staged& staged) const;
  // Recursion depth: the number of dimensions.
  void CopyInSquares(const Staged& staged, const Squares& squares,
                     const std::vector<const codegen::StageDim*>& order, size_t next);
  void TransposeSquares(const Staged& staged, const Squares& squares);
  // The element of the current point.
  ValueId PlaceOf(const Staged& staged);

  // ---- reductions that share one loop
  void OnlineAt();
  void OpenCarried();
  void Phase(const std::vector<size_t>& groups);
  absl::flat_hash_set<const UOp*> PanelsOf(const std::vector<size_t>& groups) const;
  void CarryGroup(size_t index);
  void CarryMaximum(const UOp* max, const OpenReduction& sums, size_t node);
  void EndPhase(const std::vector<size_t>& groups);
  // Calls `inside` for each tile of the output loops inside of the level that `deps` has.
  void OverInner(RangeSet deps, size_t level, const std::function<void()>& inside);
  const Staged& CarriedOf(const UOp* node) const { return staged_[carried_.at(node)]; }

  const LoopPlan* const plan_;
  std::unique_ptr<BlockLowering> block_;           // null: no plan of blocks of threads
  std::unique_ptr<CpuMatrixLowering> cpu_matrix_;  // of the plan
  std::vector<size_t> level_of_group_;             // output loops that must be open for it
  Window window_;                                  // of plan_->visible.range
  // In the stores of blocks of threads, inside ForEachPoint: the ranges that they depend on.
  const RangeSet* storing_ = nullptr;

  bool sums_by_masks_ = false;  // in a step of a reduction whose terms are kept

  std::vector<Staged> staged_;  // copies as in the plan, then panels, then what is carried
  absl::flat_hash_set<const UOp*> read_staged_;  // values that are read from there now
  std::vector<codegen::PanelPlace> panels_;      // as in the plan

  size_t online_level_ = 0;                               // of plan_->online
  absl::flat_hash_map<const UOp*, size_t> carried_;       // its reductions: index into staged_
  absl::flat_hash_map<const UOp*, ResultPlace> rescale_;  // by maximum: of its sums so far
};

}  // namespace outboard::program
