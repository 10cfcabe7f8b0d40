// Reductions that share one loop, block by block, with running maxima
// (compiler/optimize/operands/online.h). Between two blocks a running value lies in memory of the
// thread's own, for all output loops inside of the rows' (the columns of a result).
#include <algorithm>
#include <limits>

#include "compiler/program/lower/lowering.h"

namespace outboard::program {

void Lowering::OnlineAt() {
  if (plan_->visible.range >= 0) OpenWindow();
  OpenCarried();
  for (const auto& phase : plan_->online.phases) {
    Phase(phase);
    EndPhase(phase);
  }
}

void Lowering::OverInner(RangeSet deps, size_t level, const std::function<void()>& inside) {
  while (level < plan_->loops.size() && !(deps >> plan_->loops[level].range & 1)) ++level;
  if (level == plan_->loops.size()) return inside();
  OverTile(plan_->tiles[plan_->loops[level].range], [&] { OverInner(deps, level + 1, inside); });
}

// Memory for all phases, and for the panels, which are made again in each.
void Lowering::OpenCarried() {
  for (const auto& phase : plan_->online.phases)
    for (const size_t g : phase)
      for (const UOp* node : kernel_.groups[g].nodes) {
        Staged& carried = staged_[carried_.at(node)];
        const DType type = SumType(node->dtype);
        carried.memory = b_.Alloc(Space::kPrivate, type, carried.layout.elements);
        const ValueId identity = Identity(ReduceOf(node).op(), type);
        OverInner(kernel_.DepsOf(node), online_level_, [&] {
          ForEachPoint(ranges_.Tiled(kernel_.DepsOf(node)),
                    [&] { b_.Store(carried.memory, PlaceOf(carried), identity); });
        });
      }
  absl::flat_hash_map<int64_t, ValueId> memory;  // by first byte
  for (size_t i = 0; i < panels_.size(); ++i) {
    Staged& panel = staged_[plan_->stages.size() + i];
    const auto shared = memory.find(panels_[i].first_byte);
    if (shared != memory.end() && b_.at(shared->second).dtype == panel.value->dtype) {
      panel.memory = shared->second;
    } else {
      Allocate(panel);
      memory[panels_[i].first_byte] = panel.memory;
    }
  }
}

// The panels that these groups read, and those that are read by these panels.
absl::flat_hash_set<const UOp*> Lowering::PanelsOf(const std::vector<size_t>& groups) const {
  absl::flat_hash_set<const UOp*> seen, panels;
  std::vector<const UOp*> stack;
  for (const size_t g : groups)
    for (const UOp* node : kernel_.groups[g].nodes) stack.push_back(node->src[0]);
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (carried_.contains(node) || !seen.insert(node).second) continue;
    for (const codegen::Panel& panel : plan_->panels)
      if (panel.value == node) panels.insert(node);
    stack.insert(stack.end(), node->src.begin(), node->src.end());
  }
  return panels;
}

// One pass over the blocks.
void Lowering::Phase(const std::vector<size_t>& groups) {
  const codegen::Online& online = plan_->online;
  const int64_t extent = kernel_.ranges[online.range].extent;
  const int64_t blocks = (extent + online.block - 1) / online.block;
  const absl::flat_hash_set<const UOp*> panels = PanelsOf(groups);
  OpenScope();
  ValueId number = -1, loop = -1;
  if (window_.first < 0) {
    number = loop = b_.Loop(blocks);
  } else {
    const ValueId first = b_.Divide(window_.first, online.block);
    const ValueId end = b_.Min(
        b_.Divide(b_.Plus(window_.end, b_.Int(online.block - 1)), online.block), b_.Int(blocks));
    loop = b_.Loop(blocks, How::kPlain, 1, b_.Plus(end, b_.Negated(first)));
    number = b_.Plus(first, loop);
  }
  ranges_.long_block(online.range) = {number, online.block};
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    for (size_t i = 0; i < panels_.size(); ++i)
      if (panels_[i].group == g && panels.contains(plan_->panels[i].value)) MakePanel(i);
    if (std::find(groups.begin(), groups.end(), g) != groups.end()) CarryGroup(g);
  }
  ranges_.long_block(online.range) = {};
  b_.End(loop);
  CloseScope();
  for (const codegen::Panel& panel : plan_->panels) Unstage(panel.value);
}

// The block's terms, added to what the blocks before made.
void Lowering::CarryGroup(size_t index) {
  const RangeSet deps = kernel_.groups[index].deps;
  OverInner(deps, online_level_, [&] {
    const OpenReduction sums = NewReduction(static_cast<int>(index));
    for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
      const UOp* const node = sums.group->nodes[n];
      const auto max = plan_->online.max_of.find(node);
      ForEachPoint(ranges_.Tiled(deps), [&] {
        const Staged& carried = CarriedOf(node);
        ValueId value = b_.Load(carried.memory, PlaceOf(carried));
        if (max != plan_->online.max_of.end()) {
          const ResultPlace& factor = rescale_.at(max->second);
          const ValueId by = b_.Load(factor.memory, ranges_.PlaceIn(factor.ranges));
          value =
              b_.Alu(Op::kMul, SumType(node->dtype), {value, b_.Cast(by, SumType(node->dtype))});
        }
        b_.Store(sums.memory[n], PlaceOf(sums, b_.Int(0)), value);
      });
    }
    ReduceLoops(sums, 0);
    for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
      const UOp* const node = sums.group->nodes[n];
      if (plan_->online.exponential_of.contains(node)) {
        CarryMaximum(node, sums, n);
        continue;
      }
      ForEachPoint(ranges_.Tiled(deps), [&] {
        const Staged& carried = CarriedOf(node);
        b_.Store(carried.memory, PlaceOf(carried),
                 b_.Load(sums.memory[n], PlaceOf(sums, b_.Int(0))));
      });
    }
  });
}

// exp(x - m) where x is the maximum before this block rescales what was summed so far. While the
// maximum is -inf, 0 stands for it.
void Lowering::CarryMaximum(const UOp* max, const OpenReduction& sums, size_t n) {
  const UOp* const exponential = plan_->online.exponential_of.at(max);
  const ValueId result = b_.Alloc(Space::kPrivate, max->dtype, sums.elements);
  PutResult(max, {result, sums.points});
  rescale_[max] = {b_.Alloc(Space::kPrivate, max->dtype, sums.elements), sums.points};
  ForEachPoint(ranges_.Tiled(kernel_.DepsOf(max)), [&] {
    const Staged& carried = CarriedOf(max);
    const ValueId before = b_.Load(carried.memory, PlaceOf(carried));
    const ValueId now = b_.Load(sums.memory[n], PlaceOf(sums, b_.Int(0)));
    const ValueId none = b_.Const(max->dtype, -std::numeric_limits<double>::infinity());
    const ValueId all_hidden = b_.Alu(Op::kCmpEq, DType::kBool, {now, none});
    const ValueId subtracted =
        b_.Alu(Op::kWhere, max->dtype, {all_hidden, b_.Const(max->dtype, 0), now});
    b_.Store(result, ranges_.PlaceIn(sums.points), subtracted);
    OpenScope();
    Know(max->src[0], before);
    b_.Store(rescale_.at(max).memory, ranges_.PlaceIn(sums.points), Emit(exponential));
    CloseScope();
    b_.Store(carried.memory, PlaceOf(carried), now);
  });
}

// From here on results are read where they were carried. Where a maximum is -inf, its sums are what
// exp(-inf - -inf) makes them.
void Lowering::EndPhase(const std::vector<size_t>& groups) {
  for (const size_t g : groups)
    for (const UOp* node : kernel_.groups[g].nodes) ReadStaged(node, carried_.at(node));
  for (const size_t g : groups)
    for (const UOp* node : kernel_.groups[g].nodes) {
      ForgetResult(node);
      const auto max = plan_->online.max_of.find(node);
      if (max == plan_->online.max_of.end()) continue;
      OverInner(kernel_.DepsOf(node), online_level_, [&] {
        ForEachPoint(ranges_.Tiled(kernel_.DepsOf(node)), [&] {
          const Staged &sum = CarriedOf(node), &of_max = CarriedOf(max->second);
          const ValueId m = b_.Load(of_max.memory, PlaceOf(of_max));
          const DType type = SumType(node->dtype);
          const ValueId none = b_.Const(b_.at(m).dtype, -std::numeric_limits<double>::infinity());
          const ValueId hidden = b_.Alu(Op::kCmpEq, DType::kBool, {m, none});
          const ValueId nan = b_.Const(type, std::numeric_limits<double>::quiet_NaN());
          b_.Store(sum.memory, PlaceOf(sum),
                   b_.Alu(Op::kWhere, type, {hidden, nan, b_.Load(sum.memory, PlaceOf(sum))}));
        });
      });
    }
}

}  // namespace outboard::program
