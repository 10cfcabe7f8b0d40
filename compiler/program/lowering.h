// The state of lowering one kernel to loops. Every value is computed where all the loops that it
// depends on are open; the result of a reduction is stored in private memory. Loops and values are
// in lower.cc, reductions in lower_reduce.cc.
#pragma once

#include <bit>
#include <functional>
#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/program/expand.h"
#include "compiler/program/program.h"

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
inline DType SumType(DType dtype) {
  return IsFloat(dtype) && dtype != DType::kF64 ? DType::kF32 : dtype;
}

class Lowering {
 public:
  Lowering(const LoopNest& kernel, const LoopPlan* plan);

  Program RunPlan();

  Program RunThreads(const ThreadMapping& mapping);

 private:
  struct Bound {
    ValueId base = -1;  // -1: its loop is not open
    const std::vector<Piece>* pieces = nullptr;

    bool tiled() const {
      return pieces != nullptr && !(pieces->size() == 1 && (*pieces)[0].lanes == 1);
    }
    int64_t extent() const {
      const Piece& last = pieces->back();
      return last.offset + last.lanes;
    }
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
    bound_[range] = {value, nullptr};
    value_[range] = value;
  }
  void Unbind(int range) {
    bound_[range] = {};
    value_[range] = -1;
  }

  // Binds `ranges` to the point with the flat index `index`; the last range varies fastest.
  void BindAll(const std::vector<int>& ranges, ValueId index) {
    for (size_t i = ranges.size(); i-- > 0;) {
      const int64_t extent = kernel_.ranges[ranges[i]].extent;
      BindPlain(ranges[i], i == 0 ? index : b_.Modulo(index, extent));
      if (i > 0) index = b_.Divide(index, extent);
    }
  }

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
    GroupsAt(level);
    Outputs(level);
  }

  // Recursion depth: the number of output loops.
  void Outputs(size_t level) {
    if (level == plan_->loops.size()) {
      Stores();
      return;
    }
    OverTile(plan_->tiles[plan_->loops[level].range], [&] { Inside(level + 1); });
  }

  void BindTile(int range, ValueId base, const std::vector<Piece>& pieces) {
    bound_[range] = {base, &pieces};
    if (!bound_[range].tiled()) value_[range] = base;
  }

  void OverTile(const Tile& tile, const std::function<void()>& inside);

  void GroupsAt(size_t level) {
    for (size_t g = 0; g < kernel_.groups.size(); ++g)
      if (level_[g] == level) Group(static_cast<int>(g));
  }

  // ---- loops of threads
  void Sequences(int range);

  // ---- points of tiles
  int VectorRange(RangeSet ranges) const;

  std::vector<int> TiledRanges(RangeSet ranges, int last) const;

  // Emits `body` for each point of the tiles of `ranges`; the range that lies in lanes is
  // innermost.
  void Statement(RangeSet ranges, const std::function<void()>& body) {
    const int vector = VectorRange(ranges);
    OverPoints(TiledRanges(ranges, vector), 0, vector, body);
  }

  // Recursion depth: the number of ranges.
  void OverPoints(const std::vector<int>& ranges, size_t next, int vector,
                  const std::function<void()>& body);

  // ---- values
  ValueId Emit(const UOp* root);

  ValueId Compute(const UOp* node);

  // Returns the index of the current point in a memory whose dimensions are these tiled ranges.
  ValueId PlaceIn(const std::vector<int>& ranges) {
    ValueId place = b_.Int(0);
    for (const int r : ranges) place = b_.Plus(b_.Times(place, bound_[r].extent()), local_[r]);
    return place;
  }

  // Emits all values of a point before its stores: a buffer that is updated in place is read at the
  // same element.
  void Stores();

  // ---- reductions
  ValueId Identity(Op op, DType dtype) {
    if (op != Op::kMax) return b_.Const(dtype, op == Op::kAdd ? 0 : 1);
    if (IsFloat(dtype)) return b_.Const(dtype, -std::numeric_limits<double>::infinity());
    return b_.Add({.code = Code::kConst, .dtype = dtype, .imm = {IntMin(dtype), 0, 0}});
  }

  // memory[place] = memory[place] op value
  void Accumulate(Op op, ValueId memory, ValueId place, ValueId value) {
    const DType dtype = b_.at(memory).dtype;
    b_.Store(memory, place, b_.Alu(op, dtype, {b_.Load(memory, place), value}));
  }

  void Group(int index);

  // Recursion depth: the number of the group's loops, and of nested reductions.
  void OverReduced(const GroupPlan& plan, size_t level, RangeSet own, const ReduceGroup& group,
                   const std::function<void()>& body);

  // Emits the inner reductions that the group's values use and that depend on its loops, inside
  // these.
  void GroupsWithin(RangeSet own, const ReduceGroup& around);

  // Computes a reduction by all threads of the block: each sums every threads_-th term, then a tree
  // adds the sums by halves.
  void GroupTogether(int index);

  const LoopNest& kernel_;
  const LoopPlan* const plan_;  // null: plain loops in threads
  ProgramBuilder b_;
  std::vector<ValueId> buffers_;  // by slot
  std::vector<Bound> bound_;      // by range
  // By range, inside a statement: its value, its value less the tile's base, its piece and its
  // lane.
  std::vector<ValueId> value_, local_, piece_, lane_;
  RangeSet mapped_ = 0;  // ranges whose value differs between blocks or threads
  int64_t threads_ = 1;
  ValueId thread_ = -1;
  std::vector<std::vector<ValueId>> shared_;  // by group and node
  std::vector<size_t> level_;                 // output loops that must be open for a group
  std::vector<bool> done_;                    // groups already computed, when mapped to threads
  absl::flat_hash_map<const UOp*, ResultPlace> results_;
  absl::flat_hash_map<const UOp*, ValueId> together_;
  absl::flat_hash_map<const UOp*, ValueId> memo_;
  std::vector<std::vector<const UOp*>> memo_scopes_;
};

}  // namespace outboard::program
