// Reductions. Running values live in stack slots, which LLVM turns into registers; there is one for
// each result in the tile, for each of the plan's partial sums. The order of terms is the plan's:
// the innermost loop last, lanes apart, and at the end partial sums first to last, then lanes by
// halves.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/render/llvm/emitter.h"

namespace outboard::render {

using codegen::GroupPlan;
using codegen::Piece;
using codegen::RangeSet;
using codegen::ReduceGroup;
using codegen::Tile;
using llvm::Type;
using llvm::Value;

struct KernelEmitter::Accumulators {
  const ReduceGroup* group = nullptr;
  const GroupPlan* plan = nullptr;
  RangeSet own = 0;               // the group's ranges
  int lanes = 1;                  // of a reduced range that lies in lanes
  int active = 0;                 // of those, in every piece; 0 where pieces differ
  std::vector<Coords> points;     // of the tile of results
  std::vector<const UOp*> terms;  // by node of the group
  // Where a term is WHERE(gate, x, 0) in a sum: x is added where the gate's conditions hold. Since
  // a sum starts from +0, it is never -0, and adding 0 changes nothing: a branch may leave the
  // addition out.
  std::vector<std::vector<const UOp*>> conditions;
  std::vector<llvm::AllocaInst*> slots;  // [node][point][partial]

  llvm::AllocaInst*& slot(size_t node, size_t point, int partial) {
    return slots[(node * points.size() + point) * plan->partials + partial];
  }
};

void KernelEmitter::Group(int index) {
  if (plan_.groups[index].core) {
    TensorCoreGroup(index);
    return;
  }
  Accumulators acc;
  acc.group = &kernel_.groups[index];
  acc.plan = &plan_.groups[index];
  acc.points = Points(acc.group->deps);
  for (const Tile& tile : acc.plan->loops) {
    acc.own |= RangeSet{1} << tile.range;
    for (const auto* pieces : {&tile.main, &tile.rest})
      for (const Piece& piece : *pieces) {
        if (piece.lanes == 1) continue;
        acc.active = acc.lanes == 1 || acc.active == piece.active ? piece.active : 0;
        acc.lanes = piece.lanes;
      }
  }
  for (const UOp* node : acc.group->nodes) {
    const UOp* value = node->src[0];
    acc.conditions.emplace_back();
    if (ReduceOf(node).op() == Op::kAdd && value->op == Op::kWhere && IsZero(value->src[2])) {
      acc.conditions.back() = Conjuncts(value->src[0]);
      value = value->src[1];
    }
    acc.terms.push_back(value);
  }

  acc.slots.resize(acc.group->nodes.size() * acc.points.size() * acc.plan->partials);
  llvm::BasicBlock& entry = function_->getEntryBlock();
  for (size_t n = 0; n < acc.group->nodes.size(); ++n) {
    const UOp* const node = acc.group->nodes[n];
    for (size_t p = 0; p < acc.points.size(); ++p) {
      const int lanes = std::max(acc.lanes, LanesOf(acc.group->deps, acc.points[p]));
      Type* type = RegisterType(b_.getContext(), node->dtype);
      if (lanes > 1) type = llvm::FixedVectorType::get(type, lanes);
      Value* const identity = alu_.Identity(ReduceOf(node).op(), node->dtype, type);
      for (int i = 0; i < acc.plan->partials; ++i) {
        b_.SetInsertPoint(&entry, entry.begin());
        acc.slot(n, p, i) = b_.CreateAlloca(type);
        scopes_->EnterCurrent();
        b_.CreateStore(identity, acc.slot(n, p, i));
      }
    }
  }
  ReduceLoops(acc, 0);
  scopes_->EnterCurrent();
  for (size_t n = 0; n < acc.group->nodes.size(); ++n) {
    const UOp* const node = acc.group->nodes[n];
    const Op op = ReduceOf(node).op();
    for (size_t p = 0; p < acc.points.size(); ++p) {
      Value* value = nullptr;
      for (int i = 0; i < acc.plan->partials; ++i) {
        llvm::AllocaInst* const slot = acc.slot(n, p, i);
        Value* const part = b_.CreateLoad(slot->getAllocatedType(), slot);
        value = value == nullptr ? part : alu_.Combine(op, node->dtype, value, part);
      }
      if (acc.lanes > 1) {
        if (acc.active > 0 && acc.active < acc.lanes)  // idle lanes were left alone so far
          value = b_.CreateSelect(ActiveMask(acc.lanes, acc.active), value,
                                  alu_.Identity(op, node->dtype, value->getType()));
        value = FoldLanes(op, node->dtype, value);
      }
      value = alu_.Round(value, node->dtype);
      const int lanes = LanesOf(acc.group->deps, acc.points[p]);
      if (node->dtype == DType::kI64) value = AsType(value, LaneType(node, lanes));
      scopes_->at(ScopeOf(acc.group->deps)).values[{node, acc.points[p]}] = value;
    }
  }
}

// Depth: the number of the group's loops.
void KernelEmitter::ReduceLoops(Accumulators& acc, size_t level) {
  if (level == acc.plan->loops.size()) {
    std::vector<const UOp*> roots;
    for (const UOp* node : acc.group->nodes) roots.push_back(node->src[0]);
    GroupsInside(acc.own, roots);
    ReduceBody(acc);
    return;
  }
  OverTile(acc.plan->loops[level], [&] { ReduceStep(acc, level); });
}

// Reductions that `roots` are computed with and that depend on the loops of the one being written,
// now that these are open. Depth: the reductions around each other, each of which has ranges of its
// own: at most limits::kKernelRangesMax.
void KernelEmitter::GroupsInside(RangeSet own, const std::vector<const UOp*>& roots) {
  absl::flat_hash_set<const UOp*> needed;
  for (std::vector<const UOp*> stack = roots; !stack.empty();) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (staged_.contains(node) || !needed.insert(node).second) continue;
    stack.insert(stack.end(), node->src.begin(), node->src.end());
  }
  for (size_t i = 0; i < kernel_.groups.size(); ++i) {
    const RangeSet deps = kernel_.groups[i].deps;
    const std::vector<const UOp*>& nodes = kernel_.groups[i].nodes;
    bool open = (deps & own) && std::any_of(nodes.begin(), nodes.end(),
                                            [&](const UOp* node) { return needed.contains(node); });
    for (RangeSet d = deps; d != 0; d &= d - 1)
      open = open && bound_[std::countr_zero(d)].base != nullptr;
    for (const int range : kernel_.groups[i].ranges) open = open && bound_[range].base == nullptr;
    if (open) Group(static_cast<int>(i));
  }
}

// Just inside the loop of `level`: where conditions of the terms are known now, the rest is behind
// a branch.
void KernelEmitter::ReduceStep(Accumulators& acc, size_t level) {
  const int range = acc.plan->loops[level].range;
  std::vector<const UOp*> known;
  if (acc.group->nodes.size() == 1 && bound_[range].number < 0 &&
      bound_[range].scope == scopes_->current())
    for (const UOp* condition : acc.conditions[0]) {
      const RangeSet deps = kernel_.DepsOf(condition);
      bool ready = deps >> range & 1;
      for (RangeSet d = deps; d != 0; d &= d - 1) {
        const Bound& bound = bound_[std::countr_zero(d)];
        ready = ready && bound.base != nullptr && bound.number < 0;
      }
      if (ready && !holds_.contains(condition)) known.push_back(condition);
    }
  if (known.empty()) {
    ReduceLoops(acc, level + 1);
    return;
  }
  Value* all = nullptr;
  for (const UOp* condition : known) {
    Value* const value = Emit(condition, 0);
    all = all == nullptr ? value : b_.CreateAnd(all, value);
  }
  scopes_->OpenIf(all);
  // What depends on this loop is from here on written inside the branch, where the conditions hold.
  const int outer = bound_[range].scope;
  bound_[range].scope = scopes_->current();
  for (const UOp* condition : known) holds_.insert(condition);
  ReduceLoops(acc, level + 1);
  for (const UOp* condition : known) holds_.erase(condition);
  bound_[range].scope = outer;
  scopes_->CloseIf();
}

void KernelEmitter::ReduceBody(Accumulators& acc) {
  std::vector<int>
      split;  // the tiled range whose pieces have their own partial sums: the innermost
  for (const Tile& tile : acc.plan->loops)
    if (bound_[tile.range].number >= 0) split.push_back(tile.range);
  for (const Coords inner : Points(acc.own)) {
    int partial = 0;
    if (!split.empty() && acc.plan->partials > 1)
      partial =
          static_cast<int>(inner >> (8 * bound_[split.back()].number) & 255) % acc.plan->partials;
    for (size_t p = 0; p < acc.points.size(); ++p) {
      const Coords coords = acc.points[p] | inner;
      for (size_t n = 0; n < acc.group->nodes.size(); ++n) {
        const UOp* const node = acc.group->nodes[n];
        llvm::AllocaInst* const slot = acc.slot(n, p, partial);
        Type* const type = slot->getAllocatedType();
        const int lanes =
            type->isVectorTy()
                ? static_cast<int>(llvm::cast<llvm::FixedVectorType>(type)->getNumElements())
                : 1;
        Value* value = Emit(acc.terms[n], coords);
        Value* mask = nullptr;
        for (const UOp* condition : acc.conditions[n]) {
          if (holds_.contains(condition)) continue;
          Value* const c = Splat(Emit(condition, coords), lanes);
          scopes_->EnterCurrent();
          mask = mask == nullptr ? c : b_.CreateAnd(mask, c);
        }
        scopes_->EnterCurrent();
        int range = -1;
        if (acc.active == 0 && LanesOf(acc.own, coords, &range) > 1 &&
            PieceOf(range, coords).active < lanes &&
            !(ReduceOf(node).op() == Op::kAdd && ZeroInIdleLanes(acc.terms[n], range))) {
          Value* const active = ActiveMask(lanes, PieceOf(range, coords).active);
          mask = mask == nullptr ? active : b_.CreateAnd(mask, active);
        }
        if (node->dtype == DType::kI64) value = AsType(value, DType::kI64);
        Value* const before = b_.CreateLoad(type, slot);
        Value* after = alu_.Combine(ReduceOf(node).op(), node->dtype, before, Splat(value, lanes));
        if (mask != nullptr) after = b_.CreateSelect(mask, after, before);
        b_.CreateStore(after, slot);
      }
    }
  }
}

// Whether the lanes of `term` that are not active hold zeros, as loads leave them. A product needs
// that of both sides: zero times a NaN is none. Depth: as far as sums and products of loads go, at
// most 4.
bool KernelEmitter::ZeroInIdleLanes(const UOp* term, int range, int depth) const {
  if (depth == 0 || !(kernel_.DepsOf(term) >> range & 1)) return false;
  if (term->op == Op::kLoad) return term->src.size() == 1 || IsZero(term->src[2]);
  if (term->op == Op::kCast) return ZeroInIdleLanes(term->src[0], range, depth - 1);
  if (term->op != Op::kMul && term->op != Op::kAdd) return false;
  return ZeroInIdleLanes(term->src[0], range, depth - 1) &&
         ZeroInIdleLanes(term->src[1], range, depth - 1);
}

Value* KernelEmitter::FoldLanes(Op op, DType dtype, Value* value) {
  int lanes =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(value->getType())->getNumElements());
  for (; lanes > 1; lanes /= 2) {
    std::vector<int> low, high;
    for (int i = 0; i < lanes / 2; ++i) {
      low.push_back(i);
      high.push_back(i + lanes / 2);
    }
    value = alu_.Combine(op, dtype, b_.CreateShuffleVector(value, low),
                         b_.CreateShuffleVector(value, high));
  }
  return b_.CreateExtractElement(value, b_.getInt64(0));
}

}  // namespace outboard::render
