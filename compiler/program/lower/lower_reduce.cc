// Reductions: a running value for each point, partial sum and lane, in private memory; or one for
// each thread of a block, in shared memory.
//
// A running value lies at a constant place once loops are written out, and is always read and
// written with the same number of lanes: a compiler turns such memory into registers.
#include <algorithm>
#include <limits>

#include "compiler/program/lower/lowering.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::program {

void Lowering::Reduce(int index) {
  if (plan_ != nullptr && plan_->groups[index].core) {
    cpu_matrix_->Reduce(index);
    return;
  }
  if (block_ != nullptr) block_->KeepRows(static_cast<size_t>(index));
  OpenReduction sums = NewReduction(index);
  for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
    const UOp* const node = sums.group->nodes[n];
    const ValueId identity = Identity(ReduceOf(node).op(), SumType(node->dtype));
    ForEachPoint(ranges_.Tiled(sums.group->deps), [&] {
      for (int64_t partial = 0; partial < sums.plan.partials; ++partial)
        b_.Store(sums.memory[n], PlaceOf(sums, b_.Int(partial)), b_.Splat(identity, sums.lanes));
    });
  }
  if (block_ == nullptr || !block_->LoopWithCopiesAhead(sums)) ReduceLoops(sums, 0);
  if (sums.plan.shared_by > 1) {
    block_->JoinResults(index, sums);
  } else {
    PutResults(sums);
  }
}

OpenReduction Lowering::NewReduction(int index) {
  OpenReduction sums;
  sums.group = &kernel_.groups[index];
  sums.index = static_cast<size_t>(index);
  const ReduceGroup& group = *sums.group;
  if (plan_ != nullptr) {
    sums.plan = plan_->groups[index];
  } else {
    for (const int r : group.ranges)
      sums.plan.loops.push_back(codegen::PlainTile(r, kernel_.ranges[r].extent));
  }
  for (const Tile& tile : sums.plan.loops) {
    sums.own |= RangeSet{1} << tile.range;
    for (const auto* pieces : {&tile.main, &tile.rest})
      for (const Piece& piece : *pieces) {
        if (piece.lanes == 1) continue;
        sums.active = sums.lanes == 1 || sums.active == piece.active ? piece.active : 0;
        sums.lanes = piece.lanes;
      }
  }
  sums.vector = ranges_.VectorRange(group.deps);
  sums.points = ranges_.Tiled(group.deps, sums.vector);
  for (const int r : sums.points) sums.elements *= ranges_[r].extent();
  for (const UOp* node : group.nodes) {
    const UOp* value = node->src[0];
    sums.conditions.emplace_back();
    if (ReduceOf(node).op() == Op::kAdd && value->op == Op::kWhere && IsZero(value->src[2])) {
      sums.conditions.back() = ConjunctsOf(value->src[0]);
      value = value->src[1];
    }
    sums.terms.push_back(value);
  }
  const int64_t elements = sums.elements * sums.plan.partials * sums.lanes;
  for (const UOp* node : group.nodes)
    sums.memory.push_back(b_.Alloc(Space::kPrivate, SumType(node->dtype), elements));
  return sums;
}

// The element of the first lane of a running value of this point.
ValueId Lowering::PlaceOf(const OpenReduction& sums, ValueId partial) {
  ValueId at = b_.Int(0);
  const auto within = [&](int64_t extent, ValueId i) {
    if (extent > 1) at = b_.Plus(b_.Times(at, extent), i);
  };
  for (const int r : sums.points)
    if (r != sums.vector) within(ranges_[r].extent(), ranges_[r].own_number);
  within(sums.plan.partials, partial);
  if (sums.lanes > 1) at = b_.Times(at, sums.lanes);
  if (sums.vector >= 0) within(ranges_[sums.vector].extent(), ranges_[sums.vector].own_number);
  return at;
}

void Lowering::ReduceLoops(const OpenReduction& sums, size_t level) {
  if (level == sums.plan.loops.size()) {
    std::vector<const UOp*> roots;
    for (const UOp* node : sums.group->nodes) roots.push_back(node->src[0]);
    if (CopiesFor(sums)) block_->CopiesForStep(sums);
    GroupsWithin(sums.own, roots);
    ReduceBody(sums);
    if (block_ != nullptr) block_->ForgetCopies();
    return;
  }
  OverTile(sums.plan.loops[level], [&] { ReduceStep(sums, level); });
}

// Just inside the loop of `level`: where conditions of the terms are known now, the rest is behind
// a branch.
void Lowering::ReduceStep(const OpenReduction& sums, size_t level) {
  const int range = sums.plan.loops[level].range;
  std::vector<const UOp*> known;
  if (sums.group->nodes.size() == 1 && !ranges_[range].tiled() && !ranges_[range].cut &&
      !CopiesFor(sums))
    for (const UOp* condition : sums.conditions[0]) {
      const RangeSet deps = kernel_.DepsOf(condition);
      bool ready = deps >> range & 1;
      for (RangeSet d = deps; d != 0; d &= d - 1) {
        const OpenRange& open = ranges_[std::countr_zero(d)];
        ready = ready && open.is_open() && !open.tiled();
      }
      if (ready && !IsAssumed(condition)) known.push_back(condition);
    }
  if (known.empty()) {
    ReduceLoops(sums, level + 1);
    return;
  }
  OpenScope();
  const ValueId branch = b_.If(Gate(known));
  for (const UOp* condition : known) Assume(condition);
  ReduceLoops(sums, level + 1);
  for (const UOp* condition : known) EndAssume(condition);
  b_.EndIf(branch);
  CloseScope();
}

// Steps outside of points: a step's operands are used by all points, one after the other.
void Lowering::ReduceBody(const OpenReduction& sums) {
  int split = -1;  // the innermost tiled range, whose pieces have their own partial sums
  int vector = -1;
  for (const Tile& tile : sums.plan.loops) {
    if (!ranges_[tile.range].tiled()) continue;
    if (tile.lanes() > 1) vector = tile.range;
    split = tile.range;
  }
  std::vector<int> order = ranges_.Tiled(sums.own);
  for (const int r : ranges_.Tiled(sums.group->deps)) order.push_back(r);
  sums_by_masks_ = AreKept(sums);
  ForEachPoint(order, [&] {
    ValueId place = PlaceOf(sums, split < 0 || sums.plan.partials == 1
                                      ? b_.Int(0)
                                      : b_.Modulo(ranges_[split].piece, sums.plan.partials));
    if (vector >= 0) place = b_.Plus(place, ranges_.lanes().lane);
    for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
      const UOp* const node = sums.group->nodes[n];
      const Op op = ReduceOf(node).op();
      const ValueId value = b_.Cast(Emit(sums.terms[n]), SumType(node->dtype));
      ValueId mask = b_.And(Gate(sums.conditions[n]),
                            block_ != nullptr ? ranges_.WithinExtents(sums.own) : -1);
      const bool in_part = vector >= 0 && ranges_[vector].in_part.any();
      if (in_part || (vector >= 0 && sums.active == 0 &&
                      !(op == Op::kAdd && ZeroInIdleLanes(sums.terms[n], vector))))
        mask = b_.And(mask, ranges_.ActiveLanes(RangeSet{1} << vector));
      const ValueId before = b_.Load(sums.memory[n], place);
      ValueId after = Combine(op, before, value);
      if (mask >= 0) after = b_.Alu(Op::kWhere, b_.at(before).dtype, {mask, after, before});
      b_.Store(sums.memory[n], place, after);
    }
  });
  sums_by_masks_ = false;
}

// Whether threads have all that the terms of a step need of rows.
bool Lowering::AreKept(const OpenReduction& sums) const {
  std::vector<const UOp*> terms;
  for (const UOp* node : sums.group->nodes) terms.push_back(node->src[0]);
  return std::ranges::none_of(PostOrder(terms), [&](const UOp* node) {
    return node->op == Op::kLoad && (kernel_.DepsOf(node) & sums.own) != 0 && !IsProvided(node);
  });
}

// Whether the lanes of `term` that are not active hold zeros, as loads leave them. A product needs
// that of both sides: zero times a NaN is none. Depth: as far as sums and products of loads go, at
// most 4.
bool Lowering::ZeroInIdleLanes(const UOp* term, int range, int depth) const {
  if (depth == 0 || !(kernel_.DepsOf(term) >> range & 1)) return false;
  if (term->op == Op::kLoad) return term->src.size() == 1 || IsZero(term->src[2]);
  if (term->op == Op::kCast) return ZeroInIdleLanes(term->src[0], range, depth - 1);
  if (term->op != Op::kMul && term->op != Op::kAdd) return false;
  return ZeroInIdleLanes(term->src[0], range, depth - 1) &&
         ZeroInIdleLanes(term->src[1], range, depth - 1);
}

ValueId Lowering::Folded(const OpenReduction& sums, size_t n) {
  const UOp* const node = sums.group->nodes[n];
  const Op op = ReduceOf(node).op();
  const DType type = SumType(node->dtype);
  ValueId value = -1;
  for (int64_t partial = 0; partial < sums.plan.partials; ++partial) {
    Instruction load{.code = Code::kLoad, .dtype = type, .lanes = sums.lanes};
    load.src = {sums.memory[n], PlaceOf(sums, b_.Int(partial))};
    const ValueId part = b_.Add(std::move(load));
    value = value < 0 ? part : Combine(op, value, part);
  }
  if (sums.active > 0 && sums.active < sums.lanes) {  // idle lanes were left alone so far
    Instruction mask{.code = Code::kLanes, .dtype = DType::kBool, .lanes = sums.lanes};
    for (int lane = 0; lane < sums.lanes; ++lane)
      mask.src.push_back(b_.Const(DType::kBool, lane < sums.active));
    const ValueId identity = b_.Splat(Identity(op, type), sums.lanes);
    Instruction chosen{.code = Code::kAlu, .op = Op::kWhere, .dtype = type};
    chosen.lanes = sums.lanes;
    chosen.src = {b_.Add(std::move(mask)), value, identity};
    value = b_.Add(std::move(chosen));
  }
  return FoldLanes(op, value);
}

// Rounded once, at the end.
void Lowering::PutResults(const OpenReduction& sums) {
  for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
    const UOp* const node = sums.group->nodes[n];
    if (sums.plan.partials * sums.lanes == 1 && SumType(node->dtype) == node->dtype) {
      PutResult(node, {sums.memory[n], sums.points});
      continue;
    }
    ResultPlace result{b_.Alloc(Space::kPrivate, node->dtype, sums.elements), sums.points};
    ForEachPoint(ranges_.Tiled(sums.group->deps), [&] {
      b_.Store(result.memory, ranges_.PlaceIn(sums.points), b_.Cast(Folded(sums, n), node->dtype));
    });
    PutResult(node, std::move(result));
  }
}

ValueId Lowering::FoldLanes(Op op, ValueId value) {
  const DType type = b_.at(value).dtype;
  const auto lane = [&](int number) {
    return b_.Add({.code = Code::kLane, .dtype = type, .src = {value}, .imm = {number, 0, 0}});
  };
  for (int lanes = b_.at(value).lanes; lanes > 1; lanes /= 2) {
    const int half = lanes / 2;
    if (half == 1) return Combine(op, lane(0), lane(1));
    Instruction low{.code = Code::kLanes, .dtype = type, .lanes = half}, high = low;
    for (int i = 0; i < half; ++i) {
      low.src.push_back(lane(i));
      high.src.push_back(lane(i + half));
    }
    const ValueId first = b_.Add(std::move(low));
    value = Combine(op, first, b_.Add(std::move(high)));
  }
  return value;
}

// Depth: the reductions around each other, each of which has ranges of its own: at most
// limits::kKernelRangesMax.
void Lowering::GroupsWithin(RangeSet own, const std::vector<const UOp*>& roots) {
  absl::flat_hash_set<const UOp*> needed;
  for (std::vector<const UOp*> stack = roots; !stack.empty();) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (read_staged_.contains(node) || !needed.insert(node).second) continue;
    stack.insert(stack.end(), node->src.begin(), node->src.end());
  }
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const ReduceGroup& group = kernel_.groups[g];
    bool open = (group.deps & own) != 0 && ranges_.AreOpen(group.deps) &&
                std::any_of(group.nodes.begin(), group.nodes.end(),
                            [&](const UOp* node) { return needed.contains(node); });
    for (const int r : group.ranges) open = open && !ranges_[r].is_open();
    if (open) Reduce(static_cast<int>(g));
  }
}

}  // namespace outboard::program
