// The state of lowering one kernel to loops. Every value is computed where all the loops that it
// depends on are open; the result of a reduction is stored in private memory.
//
//   lower.cc          the whole: tasks of a plan, blocks of threads
//   lower_loops.cc    loops over tiles, their points and lanes, and the stores
//   lower_sequences.cc   sequences, whose steps one thread takes
//   lower_reduce.cc   reductions
//   lower_copies.cc   copies of operands and panels
//   lower_visible.cc  which steps of a loop of panels are run
//   lower_core.cc     sums of products by matrix units
//   lower_pack.cc     copies of their operands
//   lower_online.cc   reductions that share one loop, with running maxima
//   lower_threads.cc  blocks of threads: who computes what, joins, copies for the block
//   lower_rows.cc     rows that a block holds
//
// Values at a point are PointLowering's (point_lowering.h), which ranges are open OpenRanges'
// (open_ranges.h).
//
// The order of a reduction's terms is the plan's: loops as they are nested, lanes apart, and at the
// end partial sums first to last, then lanes by halves.
#pragma once

#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/operands/online.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/optimize/operands/staging.h"
#include "compiler/optimize/threads/apply_threads.h"
#include "compiler/optimize/threads/kept_row.h"
#include "compiler/optimize/threads/row_copy.h"
#include "compiler/optimize/threads/shifted_copy.h"
#include "compiler/program/expand.h"
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

class Lowering : public PointLowering {
 public:
  // `plan`, which outlives this, or null: plain loops in threads.
  Lowering(const LoopNest& kernel, const LoopPlan* plan);

  Program RunPlan();
  Program RunThreads(const ThreadMapping& mapping);

 private:
  struct Reduction;
  // The steps of the loop of panels that are run for the tile of rows that is open: multiples of
  // every tile of that loop, but for the extent.
  struct Window {
    ValueId first = -1;  // -1: all steps
    ValueId end = -1;
  };

  int64_t Points(const std::vector<int>& ranges) const {
    int64_t points = 1;
    for (const int r : ranges) points *= kernel_.ranges[r].extent;
    return points;
  }

  // Opens branches around the code that follows, for ranges that end before their extent.
  std::vector<ValueId> IfsBelowEnds(const std::vector<int>& ranges);

  // ---- loops of a plan
  void TaskLoops(size_t level, const std::vector<ValueId>& steps);

  void Inside(size_t level) {
    StagesAt(level);
    GroupsAt(level);
    if (!shifted_copies_.empty() && level == static_cast<size_t>(plan_->task_loops)) b_.Barrier();
    Outputs(level);
    EndStagesAt(level);
  }

  // Recursion depth: the number of output loops.
  void Outputs(size_t level);

  void BindTile(const Tile& tile, ValueId step, ValueId step_in_block,
                const std::vector<Piece>& pieces);
  // Calls `inside` once for the blocks of a tile, in a loop if there are several, and once for its
  // rest, each time with the range bound.
  void OverTile(const Tile& tile, const std::function<void()>& inside);
  // The same for the part of them that lies in the longer block that is open.
  void OverBlock(const Tile& tile, const LongBlock& block, const std::function<void()>& inside);

  // Panels wait for the groups before theirs only.
  void GroupsAt(size_t level) {
    const bool online = plan_->online.range >= 0 && level == online_level_;
    for (size_t g = 0; g < kernel_.groups.size(); ++g) {
      if (online) {
        if (level_[g] == level) Group(static_cast<int>(g));
        continue;
      }
      PanelsAt(level, g);
      if (level_[g] == level) Group(static_cast<int>(g));
    }
    if (online) return OnlineAt();
    PanelsAt(level, kernel_.groups.size());
  }

  // The same for the steps that are run.
  void OverWindow(const Tile& tile, const std::function<void()>& inside);
  void OpenWindow();
  // Of a row of the tile that is open: the least or the greatest value.
  ValueId Extreme(const codegen::RowForm& form, bool greatest);
  // Whether a guard is not 0 in a step outside of the window.
  ValueId GuardsFail(const Window& window);

  // ---- loops of threads
  // Recursion depth: the number of sequences.
  void Sequences(int range);
  std::vector<const UOp*> GateOfSteps(int range) const;
  void Step(int range, ValueId step);
  void StepsAhead(int range, const std::vector<const UOp*>& gate, int64_t first, int64_t times,
                  int64_t ahead, int64_t together);
  void StepsTogether(int range, const std::function<ValueId(int64_t)>& step, int64_t count);
  void OverColumns(const std::function<void()>& body);

  // ---- blocks of threads, by a plan
  // The bits `mask` of the thread's number in its task, moved together: those of the block in its
  // cluster are the highest.
  ValueId ThreadNumber(uint64_t mask);
  // How many values of an aligned range lie between a sector's first byte and the row's first one.
  ValueId ValuesBeforeRow(const Tile& tile);
  // The thread's place among those that divide the range.
  ValueId PlaceOfThread(int range);
  // Whether the point's vector begins below the ends of those ranges that a thread handles in one
  // iteration; -1: it does. Loops of several iterations end there by themselves.
  ValueId BelowEndsOf(RangeSet ranges);
  // Whether this thread stores what depends on these ranges, at this point; -1: it does.
  ValueId StoresHere(RangeSet deps);
  void OpenBlock();
  // Rows that the block reads as a whole; by all of its threads.
  void CopyRows();
  // In such a copy, of what lies at `index` in the buffer. Of rows beyond the last one, too.
  ValueId PlaceInRows(const codegen::RowLayout& layout, const UOp* index);
  // Reads rows that are kept from this group on.
  void KeepRows(size_t group);
  // The memory of the current point of a row that is kept, and its place there.
  std::pair<ValueId, ValueId> PlaceOfKept(size_t row, int range);
  struct ShiftedCopy {
    const UOp* load = nullptr;
    codegen::ShiftedLayout layout;
    ValueId memory = -1;
  };
  // Operands of aligned rows; by all threads of the block, before a barrier that comes later.
  void CopyShifted();
  ValueId LoadShifted(const ShiftedCopy& copy);
  void JoinResults(int index, const Reduction& sums);
  // Of the threads of a warp whose numbers differ in these bits alone.
  ValueId JoinLanes(Op op, ValueId value, uint64_t lanes);
  void JoinThroughMemory(const codegen::Joining& joining, const Reduction& sums,
                         const std::vector<ValueId>& totals);
  void JoinBlocks(const codegen::Joining& joining, const Reduction& sums,
                  const std::vector<ValueId>& totals);
  void CopiesForStep(const Reduction& sums);
  // Returns false where that is not possible: then each step copies before it is computed.
  bool LoopWithCopiesAhead(const Reduction& sums);
  void ReadCopies(const Reduction& sums);
  void ForgetCopies();
  int64_t CopiesOfThread(size_t copy) const;
  void OverCopy(size_t copy, ValueId step,
                const std::function<void(ValueId own, ValueId place)>& inside);
  ValueId PlaceInBlock(size_t copy);
  ValueId PlaceInTile(int range);
  bool CopiesFor(const Reduction& sums) const;

  // ---- points of tiles
  // Emits `body` for each point of the tiles of `ranges`, outermost first; the lanes of a vector
  // are the innermost loop.
  void Statement(const std::vector<int>& ranges, const std::function<void()>& body) {
    OverPoints(ranges, 0, body);
  }

  // Recursion depth: the number of ranges.
  void OverPoints(const std::vector<int>& ranges, size_t next, const std::function<void()>& body);
  void OverLanes(const std::vector<int>& ranges, const std::function<void()>& body);

  // ---- loads and stores
  void AdaptLoad(const UOp* node, Instruction& load, ValueId& mask) override;
  void Stores();

  // ---- reductions
  struct Reduction {
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

  // memory[place] = memory[place] op value
  void Accumulate(Op op, ValueId memory, ValueId place, ValueId value) {
    b_.Store(memory, place, Combine(op, b_.Load(memory, place), value));
  }

  void Group(int index);
  // The memory of running values, which holds nothing yet.
  Reduction Running(int index);
  ValueId PlaceOf(const Reduction& sums, ValueId partial);
  void Results(const Reduction& sums);
  // Of a point: partial sums and lanes as one value, not rounded yet.
  ValueId Folded(const Reduction& sums, size_t node);

  // Recursion depth: the number of the group's loops, and of nested reductions.
  void ReduceLoops(const Reduction& sums, size_t level);
  void ReduceStep(const Reduction& sums, size_t level);
  void ReduceBody(const Reduction& sums);
  bool ZeroInIdleLanes(const UOp* term, int range, int depth = 4) const;

  ValueId FoldLanes(Op op, ValueId value);

  // Emits the reductions that `roots` are computed with and that depend on the loops `own`, inside
  // these.
  void GroupsWithin(RangeSet own, const std::vector<const UOp*>& roots);

  // Computes a reduction by all threads of the block: each sums every threads_-th term, then a tree
  // adds the sums by halves.
  void GroupTogether(int index);

  // ---- copies of operands, and panels
  struct Staged {
    const UOp* value = nullptr;
    codegen::StageLayout layout;
    ValueId memory = -1;  // -1: nothing is there yet
  };
  void OpenCopies();
  void StagesAt(size_t level);
  void EndStagesAt(size_t level);
  void PanelsAt(size_t level, size_t group);
  void MakePanel(size_t panel);
  void Allocate(Staged& staged);
  // From now on, and until Unstage, the value is read from stages_[stage].
  void ReadStaged(const UOp* value, size_t stage);
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
  // Returns the element of the current point; of a block's first one.
  ValueId PlaceOf(const Staged& staged);
  ValueId BlockOf(const Staged& staged, int64_t per_element = 1);

  // ---- reductions that share one loop
  void OnlineAt();
  void OpenCarried();
  void Phase(const std::vector<size_t>& groups);
  absl::flat_hash_set<const UOp*> PanelsOf(const std::vector<size_t>& groups) const;
  void CarryGroup(size_t index);
  void CarryMaximum(const UOp* max, const Reduction& sums, size_t node);
  void EndPhase(const std::vector<size_t>& groups);
  // Calls `inside` for each tile of the output loops inside of the level that `deps` has.
  void OverInner(RangeSet deps, size_t level, const std::function<void()>& inside);
  const Staged& CarriedOf(const UOp* node) const { return stages_[carried_.at(node)]; }

  // ---- sums of products of bf16 by matrix units, and the copies of their operands
  struct CoreSums;
  struct Square;
  void OpenTiles();
  void CoreGroup(int index);
  // Recursion depth: the number of the group's loops.
  void CoreLoops(const CoreSums& sums, size_t level);
  void TileStep(const CoreSums& sums);
  void VectorStep(const CoreSums& sums);
  const Staged& StageOf(const UOp* load) const;
  // Recursion depth: the number of dimensions.
  void PackOperand(const Staged& staged, const std::vector<const codegen::StageDim*>& order,
                   size_t next);
  void PackSquare(const Staged& staged, const Square& square);
  ValueId VectorAt(ValueId memory, ValueId index, int lanes);

  const LoopPlan* const plan_;  // null: plain loops in threads
  Window window_;               // of plan_->visible.range
  RangeSet mapped_ = 0;               // ranges whose value differs between blocks or threads
  bool blocks_ = false;               // a plan of blocks of threads
  const RangeSet* stored_ = nullptr;  // of these, in a statement of stores: what they vary with
  absl::flat_hash_map<DType, ValueId> join_;  // the block's memory by the type that is joined
  std::vector<ValueId> copies_;               // as in the plan
  std::vector<codegen::CopyLayout> copy_layouts_;
  std::vector<codegen::KeptRow> rows_;  // that threads keep, and their memory
  struct KeptMemory {
    ValueId own = -1, of_block = -1;  // the vectors in registers, and the others, if there are any
  };
  std::vector<KeptMemory> kept_;
  // By range along such a row: how many of its vectors are in registers, if others are not; and
  // whether these may be run in a loop.
  std::vector<int64_t> in_registers_;
  std::vector<bool> in_steps_;
  std::vector<const UOp*> copied_;  // loads that are read from copies_ now
  struct RowCopy {
    codegen::RowLayout layout;
    ValueId memory = -1;
    bool copied = false;
  };
  absl::flat_hash_map<int64_t, RowCopy> row_copies_;  // by slot: what a block copies as a whole
  std::vector<ShiftedCopy> shifted_copies_;
  int64_t threads_ = 1;  // of a block
  int64_t columns_ = 1;  // ThreadMapping's
  ValueId thread_ = -1;
  ValueId rank_ = -1;                         // of the block in its cluster
  ValueId left_ = -1;                         // what blocks of a cluster leave for each other
  int64_t left_elements_ = 0;                 // of it, by the reductions so far
  std::vector<std::vector<ValueId>> shared_;  // by group and node
  std::vector<size_t> level_;                 // output loops that must be open for a group
  std::vector<bool> done_;                    // groups already computed, when mapped to threads
  std::vector<Staged> stages_;  // as in the plan, then the panels, then what is carried
  std::vector<codegen::PanelPlace> panels_;               // as in the plan
  size_t online_level_ = 0;                               // of plan_->online
  absl::flat_hash_map<const UOp*, size_t> carried_;       // of its reductions: into stages_
  absl::flat_hash_map<const UOp*, ResultPlace> rescale_;  // by maximum: of its sums so far
  absl::flat_hash_set<const UOp*> staged_;                // what is copied, in the loops around
  std::vector<ValueId> tiles_;                            // of a matrix unit
};

}  // namespace outboard::program
