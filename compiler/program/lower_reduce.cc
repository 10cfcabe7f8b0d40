// Reductions: a running value for each point, partial sum and lane, in private memory; or one for
// each thread of a block, in shared memory.
#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "compiler/program/lowering.h"

namespace outboard::program {

void Lowering::Group(int index) {
  const ReduceGroup& group = kernel_.groups[index];
  GroupPlan made;
  if (plan_ == nullptr)
    for (const int r : group.ranges)
      made.loops.push_back(codegen::PlainTile(r, kernel_.ranges[r].extent));
  const GroupPlan& plan = plan_ == nullptr ? made : plan_->groups[index];

  // A running value for each point, partial sum and lane; a vector's lanes lie side by side.
  const int vector = VectorRange(group.deps);
  const std::vector<int> points = TiledRanges(group.deps, vector);
  int64_t elements = 1, lanes = 1;
  int lane_range = -1, split_range = -1;
  for (const int r : points) elements *= bound_[r].extent();
  for (const Tile& tile : plan.loops) {
    if (tile.lanes() > 1) lane_range = tile.range;
    lanes = std::max<int64_t>(lanes, tile.lanes());
    if (!tile.plain()) split_range = tile.range;
  }
  const int64_t partials = split_range < 0 ? 1 : plan.partials;
  const auto place = [&](ValueId partial, ValueId lane) {
    ValueId at = b_.Int(0);
    const auto within = [&](int64_t extent, ValueId i) {
      if (extent > 1) at = b_.Plus(b_.Times(at, extent), i);
    };
    for (const int r : points)
      if (r != vector) within(bound_[r].extent(), local_[r]);
    within(partials, partial);
    within(lanes, lane);
    if (vector >= 0) within(bound_[vector].extent(), local_[vector]);
    return at;
  };
  const auto over = [&](int64_t first, int64_t end, How how, const auto& body) {
    if (end - first <= 0) return;
    if (end - first == 1) return body(b_.Int(first));
    const ValueId loop = b_.Loop(end - first, how, end - first);
    body(b_.Plus(loop, b_.Int(first)));
    b_.End(loop);
  };
  const How across = vector >= 0 ? How::kUnroll : How::kVector;

  std::vector<ValueId> sums;
  for (const UOp* node : group.nodes) {
    const DType type = SumType(node->dtype);
    sums.push_back(b_.Alloc(Space::kPrivate, type, elements * partials * lanes));
    const Op op = ReduceOf(node).op();
    Statement(group.deps, [&] {
      over(0, partials, How::kUnroll, [&](ValueId partial) {
        over(0, lanes, across, [&](ValueId lane) {
          b_.Store(sums.back(), place(partial, lane), Identity(op, type));
        });
      });
    });
  }
  RangeSet own = 0;
  for (const int r : group.ranges) own |= RangeSet{1} << r;
  OverReduced(plan, 0, own, group, [&] {
    Statement(group.deps | own, [&] {
      const ValueId partial = partials == 1 || piece_[split_range] < 0
                                  ? b_.Int(0)
                                  : b_.Modulo(piece_[split_range], partials);
      const ValueId lane = lane_range < 0 || lane_[lane_range] < 0 ? b_.Int(0) : lane_[lane_range];
      const ValueId at = place(partial, lane);
      for (size_t n = 0; n < group.nodes.size(); ++n) {
        const UOp* const node = group.nodes[n];
        const ValueId value = b_.Cast(Emit(node->src[0]), SumType(node->dtype));
        Accumulate(ReduceOf(node).op(), sums[n], at, value);
      }
    });
  });
  for (size_t n = 0; n < group.nodes.size(); ++n) {
    const UOp* const node = group.nodes[n];
    const Op op = ReduceOf(node).op();
    const ValueId zero = b_.Int(0);
    if (partials * lanes == 1 && SumType(node->dtype) == node->dtype) {
      results_[node] = {sums[n], points};
      continue;
    }
    ResultPlace result{b_.Alloc(Space::kPrivate, node->dtype, elements), points};
    Statement(group.deps, [&] {
      over(1, partials, How::kUnroll, [&](ValueId partial) {
        over(0, lanes, across, [&](ValueId lane) {
          Accumulate(op, sums[n], place(zero, lane), b_.Load(sums[n], place(partial, lane)));
        });
      });
      over(1, lanes, How::kUnroll, [&](ValueId lane) {
        Accumulate(op, sums[n], place(zero, zero), b_.Load(sums[n], place(zero, lane)));
      });
      b_.Store(result.memory, PlaceIn(points),
               b_.Cast(b_.Load(sums[n], place(zero, zero)), node->dtype));
    });
    results_[node] = std::move(result);
  }
}

void Lowering::OverReduced(const GroupPlan& plan, size_t level, RangeSet own,
                           const ReduceGroup& group, const std::function<void()>& body) {
  if (level == plan.loops.size()) {
    GroupsWithin(own, group);
    body();
    return;
  }
  OverTile(plan.loops[level], [&] { OverReduced(plan, level + 1, own, group, body); });
}

void Lowering::GroupsWithin(RangeSet own, const ReduceGroup& around) {
  absl::flat_hash_set<const UOp*> needed;
  std::vector<const UOp*> stack;
  for (const UOp* node : around.nodes) stack.push_back(node->src[0]);
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (!needed.insert(node).second) continue;
    stack.insert(stack.end(), node->src.begin(), node->src.end());
  }
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const ReduceGroup& group = kernel_.groups[g];
    bool open = (group.deps & own) != 0 && IsBound(group.deps) &&
                std::any_of(group.nodes.begin(), group.nodes.end(),
                            [&](const UOp* node) { return needed.contains(node); });
    for (const int r : group.ranges) open = open && bound_[r].base < 0;
    if (open) Group(static_cast<int>(g));
  }
}

void Lowering::GroupTogether(int index) {
  const ReduceGroup& group = kernel_.groups[index];
  std::vector<ValueId> sums;
  for (const UOp* node : group.nodes) {
    const DType type = SumType(node->dtype);
    sums.push_back(b_.Alloc(Space::kPrivate, type, 1));
    b_.Store(sums.back(), b_.Int(0), Identity(ReduceOf(node).op(), type));
  }
  const int64_t terms = Points(group.ranges);
  RangeSet own = 0;
  for (const int r : group.ranges) own |= RangeSet{1} << r;
  if (terms > 0) {
    Enter();
    const ValueId loop = b_.Loop((terms + threads_ - 1) / threads_);
    const ValueId term = b_.Plus(b_.Times(loop, threads_), thread_);
    const ValueId branch = terms % threads_ == 0 ? -1 : b_.If(b_.Less(term, b_.Int(terms)));
    BindAll(group.ranges, term);
    GroupsWithin(own, group);
    for (size_t n = 0; n < group.nodes.size(); ++n)
      Accumulate(ReduceOf(group.nodes[n]).op(), sums[n], b_.Int(0),
                 b_.Cast(Emit(group.nodes[n]->src[0]), b_.at(sums[n]).dtype));
    for (const int r : group.ranges) Unbind(r);
    if (branch >= 0) b_.EndIf(branch);
    b_.End(loop);
    Leave();
  }
  for (size_t n = 0; n < group.nodes.size(); ++n)
    b_.Store(shared_[index][n], thread_, b_.Load(sums[n], b_.Int(0)));
  b_.Barrier();
  for (int64_t half = threads_ / 2; half > 0; half /= 2) {
    const ValueId branch = b_.If(b_.Less(thread_, b_.Int(half)));
    for (size_t n = 0; n < group.nodes.size(); ++n)
      Accumulate(ReduceOf(group.nodes[n]).op(), shared_[index][n], thread_,
                 b_.Load(shared_[index][n], b_.Plus(thread_, b_.Int(half))));
    b_.EndIf(branch);
    b_.Barrier();
  }
  for (size_t n = 0; n < group.nodes.size(); ++n)
    together_[group.nodes[n]] =
        b_.Cast(b_.Load(shared_[index][n], b_.Int(0)), group.nodes[n]->dtype);
}

}  // namespace outboard::program
