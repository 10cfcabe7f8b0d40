// The state of lowering one kernel to loops. Every value is computed where all the loops that it
// depends on are open; the result of a reduction is stored in private memory.
//
//   lower.cc          the whole: tasks of a plan, blocks of threads
//   lower_loops.cc    loops over tiles, their points and lanes
//   lower_values.cc   values at a point, and the stores
//   lower_sequences.cc   sequences, whose steps one thread takes
//   lower_reduce.cc   reductions
//   lower_copies.cc   copies of operands and panels
//   lower_visible.cc  which steps of a loop of panels are run
//   lower_core.cc     sums of products by matrix units
//   lower_pack.cc     copies of their operands
//   lower_hopper.cc   products by warpgroups of a GPU (compiler/program/hopper), in a class of its
//                     own; by mma.sync: compiler/program/mma
//   lower_online.cc   reductions that share one loop, with running maxima
//   lower_online_mma.cc   the same with matrix units of a GPU, a class of its own
//   lower_online_hopper.cc   and by warpgroups; online_elements.h has what both share
//   lower_threads.cc  blocks of threads: who computes what, joins, copies for the block
//   lower_rows.cc     rows that a block holds
//
// The order of a reduction's terms is the plan's: loops as they are nested, lanes apart, and at the
// end partial sums first to last, then lanes by halves.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
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
#include "compiler/program/online/exponential.h"
#include "compiler/program/program.h"

namespace outboard::codegen {
struct MmaProduct;
}

namespace outboard::program {

using codegen::GroupPlan;
using codegen::Loop;
using codegen::LoopNest;
using codegen::LoopPlan;
using codegen::Piece;
using codegen::RangeSet;
using codegen::ReduceGroup;
using codegen::Tile;

// Returns the type of a reduction's running value (docs/semantics.md, REDUCE).
inline DType SumType(DType dtype) { return codegen::JoinTypeOf(dtype); }

// A thread of a block writes out so many copies; of more it makes a loop, whose values do not stay
// in registers.
inline constexpr int64_t kCopiesWrittenOutMax = 16;

class Lowering {
  friend class MmaLowering;     // compiler/program/mma/lower_mma.cc
  friend class HopperLowering;  // lower_hopper.cc
  friend class OnlineElements;
  friend class OnlineHopperLowering;  // lower_online_hopper.cc
  friend class OnlineMatrices;
  friend class OnlineMmaLowering;  // lower_online_mma.cc
  friend class RowSums;            // compiler/program/mma/row_sums.h
  friend class StagedOperand;      // compiler/program/mma/staged_operand.h

 public:
  Lowering(const LoopNest& kernel, const LoopPlan* plan);

  Program RunPlan();
  Program RunThreads(const ThreadMapping& mapping);

 private:
  // A range while its loop is open.
  struct Bound {
    ValueId base = -1;  // -1: its loop is not open
    // Of the tile's blocks: the number in the range, and from the start of the longer block that is
    // open.
    ValueId step = -1, step_in_block = -1;
    int64_t tile_step = 1;  // values from one block of the tile to the next
    const std::vector<Piece>* pieces = nullptr;
    bool cut = false;  // `base` and pieces may lie beyond the extent, or before the range
    // What `base` would be if the tile were not aligned.
    ValueId unaligned = -1;
    const Tile* rest = nullptr;  // whose rest `pieces` are
    bool whole = false;          // `pieces` are all that a thread has of the range
    bool runs_in_steps = false;  // of a kept row, those in memory are run in a loop everywhere

    Tile::Edges EdgesOf(const Piece& piece) const {
      if (!cut) return {};
      return rest != nullptr ? rest->EdgesOf(piece) : Tile::Edges{.beyond = true};
    }
    bool tiled() const {
      return pieces != nullptr && !(pieces->size() == 1 && (*pieces)[0].lanes == 1);
    }
    // Values of a thread.
    int64_t extent() const {
      int64_t values = 0;
      for (const Piece& piece : *pieces) values += piece.lanes;
      return values;
    }
  };
  struct Reduction;
  // A longer block of a range while its loop is open.
  struct Block {
    ValueId number = -1;  // -1: none is open
    int64_t size = 0;
  };
  // The steps of the loop of panels that are run for the tile of rows that is open: multiples of
  // every tile of that loop, but for the extent.
  struct Window {
    ValueId first = -1;  // -1: all steps
    ValueId end = -1;
  };
  // The lanes of the innermost loop, inside a statement.
  struct Lanes {
    int range = -1;  // -1: none
    ValueId lane = -1;
    int count = 1, active = 1;
  };
  struct ResultPlace {
    ValueId memory = -1;
    std::vector<int> ranges;  // tiled ones that it depends on, as the memory's dimensions
  };

  // ---- scopes of computed values
  void Enter() { memo_scopes_.emplace_back(); }
  void Leave() {
    for (const UOp* node : memo_scopes_.back()) memo_.erase(node);
    memo_scopes_.pop_back();
  }

  int64_t Points(const std::vector<int>& ranges) const {
    int64_t points = 1;
    for (const int r : ranges) points *= kernel_.ranges[r].extent;
    return points;
  }

  bool IsBound(RangeSet deps) const {
    for (; deps != 0; deps &= deps - 1)
      if (bound_[std::countr_zero(deps)].base < 0) return false;
    return true;
  }

  void BindPlain(int range, ValueId value) {
    bound_[range] = {value, value, value, 1, nullptr, false, value};
    edges_[range] = {};
    value_[range] = value;
  }
  void Unbind(int range) {
    if (bound_[range].tiled()) tiled_.pop_back();
    bound_[range] = {};
    value_[range] = -1;
  }

  // Binds `ranges` to the point with the flat index `index`; the last range varies fastest, in
  // steps of `columns`, which divide it.
  void BindAll(const std::vector<int>& ranges, ValueId index, int64_t columns = 1) {
    for (size_t i = ranges.size(); i-- > 0;) {
      const int64_t steps = kernel_.ranges[ranges[i]].extent / columns;
      BindPlain(ranges[i], b_.Times(i == 0 ? index : b_.Modulo(index, steps), columns));
      if (i > 0) index = b_.Divide(index, steps);
      columns = 1;
    }
  }

  // Opens a branch around the code that follows, for a block's tile of a product, of which nothing
  // may lie below the ends of ranges; -1: no range ends early. The batch is bound; `row` and
  // `column` are the tile's first ones, multiples of its size.
  ValueId IfBelowEnds(const codegen::MmaProduct& product, ValueId row, int64_t rows, ValueId column,
                      int64_t columns);
  ValueId ReachesBelowEnds(const std::vector<int>& ranges, ValueId first, int64_t size);

  // Opens branches around the code that follows, for ranges that end before their extent.
  std::vector<ValueId> BelowEnds(const std::vector<int>& ranges) {
    std::vector<ValueId> branches;
    for (const int r : ranges)
      if (const UOp* const end = kernel_.ranges[r].end())
        branches.push_back(b_.If(b_.Less(value_[r], Emit(end))));
    return branches;
  }

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
                const std::vector<Piece>& pieces) {
    const int range = tile.range;
    ValueId base = b_.Times(step, tile.step);
    if (tile.threads > 1) base = b_.Plus(base, b_.Times(PlaceOfThread(range), tile.run));
    Bound& bound = bound_[range];
    bound = {base, step, step_in_block, tile.step, &pieces};
    bound.unaligned = base;
    bound.rest = &pieces == &tile.rest ? &tile : nullptr;
    bound.cut = bound.rest != nullptr ? tile.rest_cut : tile.cut;
    bound.whole = tile.blocks() == 1;
    bound.runs_in_steps = codegen::RunsInSteps(tile);
    if (tile.align > 1) bound.base = b_.Plus(base, Negated(ValuesBeforeRow(tile)));
    base = bound.base;
    edges_[range] = bound.EdgesOf(pieces[0]);
    if (bound_[range].tiled()) {
      tiled_.push_back(range);
    } else {
      value_[range] = Clamped(range, base, 1);
    }
  }

  // Calls `inside` once for the blocks of a tile, in a loop if there are several, and once for its
  // rest, each time with the range bound.
  void OverTile(const Tile& tile, const std::function<void()>& inside);
  // The same for the part of them that lies in the longer block that is open.
  void OverBlock(const Tile& tile, const Block& block, const std::function<void()>& inside);

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
  ValueId Least(ValueId a, ValueId b) { return Negated(Greatest(Negated(a), Negated(b))); }
  ValueId Greatest(ValueId a, ValueId b) { return b_.Alu(Op::kMax, DType::kI64, {a, b}); }
  ValueId Negated(ValueId a) { return b_.Times(a, -1); }

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
  // `value`, of the first of so many lanes, or the last of the range where that lies beyond.
  // Or the first of it where that lies before.
  ValueId Clamped(int range, ValueId value, int lanes) {
    const Tile::Edges& edges = edges_[range];
    if (edges.beyond) value = Least(value, b_.Int(kernel_.ranges[range].extent - lanes));
    return edges.before ? Greatest(value, b_.Int(0)) : value;
  }
  // Whether the point lies within these ranges; -1: it does.
  ValueId WithinExtents(RangeSet ranges);
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
    bool copied = false;
  };
  // Operands of aligned rows; by all threads of the block, before a barrier that comes later.
  void CopyShifted();
  ValueId LoadShifted(const ShiftedCopy& copy);
  // That of `node`, once it has been made; else nullptr.
  const ShiftedCopy* ShiftedOf(const UOp* node) const {
    for (const ShiftedCopy& copy : shifted_copies_)
      if (copy.load == node && copy.copied) return &copy;
    return nullptr;
  }
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
  int64_t CopiesOfThread(size_t copy) const;
  void OverCopy(size_t copy, ValueId step,
                const std::function<void(ValueId own, ValueId place)>& inside);
  ValueId PlaceInBlock(size_t copy);
  ValueId PlaceInTile(int range);
  bool CopiesFor(const Reduction& sums) const;

  // ---- points of tiles
  int VectorRange(RangeSet ranges) const;

  // The tiled ones of `ranges`, outermost loop first; `last` comes last if it is one of them.
  std::vector<int> TiledRanges(RangeSet ranges, int last = -1) const;

  // Emits `body` for each point of the tiles of `ranges`, outermost first; the lanes of a vector
  // are the innermost loop.
  void Statement(const std::vector<int>& ranges, const std::function<void()>& body) {
    OverPoints(ranges, 0, body);
  }

  // Recursion depth: the number of ranges.
  void OverPoints(const std::vector<int>& ranges, size_t next, const std::function<void()>& body);
  void OverLanes(const std::vector<int>& ranges, const std::function<void()>& body);

  // Returns which lanes are in use, for what depends on these ranges; -1: all.
  ValueId ActiveLanes(RangeSet deps);

  // ---- values
  ValueId Emit(const UOp* root);

  ValueId Compute(const UOp* node);
  // The instruction of a node of arithmetic, without its sources.
  static Instruction AluOf(const UOp* node);
  // From here on, until the scope of values ends, the node has this value.
  void Know(const UOp* node, ValueId value) {
    memo_[node] = value;
    memo_scopes_.back().push_back(node);
  }
  ValueId Load(const UOp* node);
  // Of an exponential by the unit: y, and 2^((y - subtracted_) * (c log2 e)).
  ValueId Unscaled(const UnitExponential& unit);
  ValueId ByUnit(const UnitExponential& unit, ValueId y);

  // Returns the conjunction of conditions that no branch around has checked; -1: they hold.
  ValueId Gate(const std::vector<const UOp*>& conditions);

  // Either may be -1: true.
  ValueId And(ValueId a, ValueId b) {
    if (a < 0 || b < 0 || a == b) return a < 0 ? b : a;
    return b_.Alu(Op::kAnd, DType::kBool, {a, b});
  }

  // Returns the index of the current point in a memory whose dimensions are these tiled ranges.
  ValueId PlaceIn(const std::vector<int>& ranges) {
    ValueId place = b_.Int(0);
    for (const int r : ranges) place = b_.Plus(b_.Times(place, bound_[r].extent()), place_[r]);
    return place;
  }

  void Stores();
  void Store(const std::vector<const UOp*>& stores);

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

  ValueId Identity(Op op, DType dtype) {
    if (op != Op::kMax) return b_.Const(dtype, op == Op::kAdd ? 0 : 1);
    if (IsFloat(dtype)) return b_.Const(dtype, -std::numeric_limits<double>::infinity());
    return b_.Add({.code = Code::kConst, .dtype = dtype, .imm = {IntMin(dtype), 0, 0}});
  }

  // Of a running value with one more term: a product need not be rounded before it is added.
  ValueId Combine(Op op, ValueId a, ValueId b);

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

  const LoopNest& kernel_;
  const LoopPlan* const plan_;  // null: plain loops in threads
  ProgramBuilder b_;
  std::vector<ValueId> buffers_;  // by slot
  std::vector<Bound> bound_;      // by range
  std::vector<Block> block_;      // by range
  Window window_;                 // of plan_->visible.range
  std::vector<int> tiled_;        // bound ones that are tiled, in the order of their loops
  // By range, inside a statement: its value, its value less the tile's base, and its piece.
  std::vector<ValueId> value_, local_, piece_;
  std::vector<ValueId> place_;      // its place among the thread's own values
  std::vector<ValueId> raw_;        // where it is cut: of its first lane, as it was before
  std::vector<Tile::Edges> edges_;  // by range: of the point, or of all of what is bound
  std::vector<Lanes> lanes_of_;     // by range, inside a statement: of its pieces
  Lanes lanes_;
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
  // By range along such a row: how many of its vectors are in registers, if others are not; and,
  // whether these may be run in a loop; and, inside a statement, whether the piece is one of them.
  std::vector<int64_t> in_registers_;
  std::vector<bool> in_steps_, behind_registers_;
  // By load of them: the row, and the range along it.
  absl::flat_hash_map<const UOp*, std::pair<size_t, int>> of_kept_;
  absl::flat_hash_map<const UOp*, size_t> copied_;  // what is read from there now
  struct RowCopy {
    codegen::RowLayout layout;
    ValueId memory = -1;
    bool copied = false;
  };
  absl::flat_hash_map<int64_t, RowCopy> row_copies_;  // by slot: what a block copies as a whole
  std::vector<ShiftedCopy> shifted_copies_;
  int64_t threads_ = 1;  // of a block
  int64_t columns_ = 1;  // ThreadMapping's
  ValueId loads_if_ = -1;  // a condition of all loads that are emitted; -1: none
  ValueId thread_ = -1;
  ValueId rank_ = -1;                         // of the block in its cluster
  ValueId left_ = -1;                         // what blocks of a cluster leave for each other
  int64_t left_elements_ = 0;                 // of it, by the reductions so far
  std::vector<std::vector<ValueId>> shared_;  // by group and node
  std::vector<size_t> level_;                 // output loops that must be open for a group
  std::vector<bool> done_;                    // groups already computed, when mapped to threads
  absl::flat_hash_map<const UOp*, ResultPlace> results_;
  // Values that are computed elsewhere, for all points of a tile together: sums of reductions, and
  // the total of a product that a matrix unit has added.
  absl::flat_hash_map<const UOp*, ValueId> together_;
  // What the unit of the device computes, and by maximum what is subtracted in the row that is
  // bound: max y.
  absl::flat_hash_map<const UOp*, UnitExponential> units_;
  absl::flat_hash_map<const UOp*, ValueId> subtracted_;
  absl::flat_hash_set<const UOp*> by_inverse_;  // quotients: by the divisor's inverse, by the unit
  std::vector<Staged> stages_;  // as in the plan, then the panels, then what is carried
  std::vector<codegen::PanelPlace> panels_;               // as in the plan
  size_t online_level_ = 0;                               // of plan_->online
  absl::flat_hash_map<const UOp*, size_t> carried_;       // of its reductions: into stages_
  absl::flat_hash_map<const UOp*, ResultPlace> rescale_;  // by maximum: of its sums so far
  absl::flat_hash_map<const UOp*, size_t> staged_;        // what is copied, in the loops around
  std::vector<ValueId> tiles_;                            // of a matrix unit
  absl::flat_hash_set<const UOp*> held_;  // conditions that branches around have checked
  absl::flat_hash_map<const UOp*, ValueId> memo_;
  std::vector<std::vector<const UOp*>> memo_scopes_;
};

}  // namespace outboard::program
