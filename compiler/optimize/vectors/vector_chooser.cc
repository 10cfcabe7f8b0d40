#include "compiler/optimize/vectors/vector_chooser.h"

#include <bit>
#include <cmath>
#include <optional>

#include "compiler/optimize/rows_in_place.h"

namespace outboard::codegen {

std::vector<Opt> VectorChooser::Run() {
  FindMain();
  if (CopyUnpacked()) return opts_;
  if (const std::optional<RangeSet> rows = RowsInPlace(kernel_)) {
    copyable_.clear();  // no copies, no other order of loops
    ChooseTiles();
    if (*rows != 0) ChooseTasks();
    return opts_;
  }
  ChooseTiles();
  if (CopyOperands()) return opts_;
  // The tiles counted on copies that cannot be made for them: again, by what loads cost where
  // they are.
  copyable_.clear();
  ChooseTiles();
  if (!CopyFarRows()) ChooseTasks();
  return opts_;
}

int VectorChooser::LanesOfMain() const {
  double most = 0;
  int lanes = -1;
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    if (body(g).points <= most) continue;
    most = body(g).points;
    lanes = group_lanes_[g] >= 0                ? group_lanes_[g]
            : In(body(g).ranges, output_lanes_) ? output_lanes_
                                                : -1;
  }
  return lanes;
}

void VectorChooser::ChooseTiles() {
  opts_.clear();
  counts_.assign(kernel_.output_count, 1);
  tile_rows_ = 0;
  ChooseLanes();
  if (output_lanes_ >= 0) Add(OptKind::kVector, output_lanes_, LanesFor(output_lanes_));
  ChooseTile();
  int axis = kernel_.output_count;
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    PlanGroup(g, axis);
    axis += static_cast<int>(kernel_.groups[g].ranges.size());
  }
}

void VectorChooser::FindMain() {
  main_ = kernel_.groups.size();
  double most = 0;
  for (size_t g = 0; g < kernel_.groups.size(); ++g)
    if (const double work = body(g).points * static_cast<double>(body(g).ops.size());
        work > most && !kernel_.IsNested(kernel_.groups[g]))
      most = work, main_ = g;
  if (main_ == kernel_.groups.size()) return;
  for (const Access& access : body(main_).accesses)
    if (PaysToCopy(access)) copyable_.push_back(access.node);
}

double VectorChooser::BodyCost(const Body& b, int v) {
  double steps = b.points, lanes = 1;
  if (In(b.ranges, v)) {
    lanes = LanesFor(v);
    steps *= std::ceil(static_cast<double>(Extent(v)) / lanes) / static_cast<double>(Extent(v));
  } else {
    v = -1;
  }
  double cost = static_cast<double>(b.ops.size());
  for (const Access& access : b.accesses) cost += AccessCost(access, v);
  for (const RangeSet deps : b.slow_ops) cost += costs_.library_call * (In(deps, v) ? lanes : 1);
  return steps * cost;
}

double VectorChooser::GroupCost(size_t g, int v) {
  double cost = BodyCost(body(g), v);
  if (v >= kernel_.output_count) {
    double results = static_cast<double>(kernel_.groups[g].nodes.size());
    for (int i = 0; i < kernel_.output_count; ++i)
      if (In(kernel_.groups[g].deps, i)) results *= static_cast<double>(Extent(i));
    cost += results * 2 * std::log2(LanesFor(v));
  }
  return cost;
}

int VectorChooser::BestOwnRange(size_t g) {
  int best = -1;
  if (kernel_.IsNested(kernel_.groups[g])) return best;
  double least = GroupCost(g, -1);
  for (const int range : kernel_.groups[g].ranges) {
    if (Extent(range) < 2) continue;
    const double cost = GroupCost(g, range);
    if (cost < least) least = cost, best = range;
  }
  return best;
}

void VectorChooser::ChooseLanes() {
  group_lanes_.assign(kernel_.groups.size(), -1);
  double least = 0;
  for (int v = -1; v < kernel_.parallel_count; ++v) {
    if (v >= 0 && Extent(v) < 2) continue;
    double cost = BodyCost(stores(), v);
    std::vector<int> own(kernel_.groups.size(), -1);
    for (size_t g = 0; g < own.size(); ++g) {
      if (!In(kernel_.groups[g].deps, v)) own[g] = BestOwnRange(g);
      cost += GroupCost(g, In(kernel_.groups[g].deps, v) ? v : own[g]);
    }
    if (v == -1 || cost < least) {
      least = cost;
      output_lanes_ = v;
      group_lanes_ = own;
    }
  }
}

void VectorChooser::PlanGroup(size_t g, int axis) {
  const ReduceGroup& group = kernel_.groups[g];
  if (kernel_.IsNested(group)) return;
  auto results = static_cast<int64_t>(group.nodes.size());
  for (int i = 0; i < kernel_.output_count; ++i)
    if (In(group.deps, i)) results *= std::min(fastest_.CountIn(i, output_lanes_), VectorsOf(i));
  const int own = group_lanes_[g], inner = own >= 0 ? own : group.ranges.back();
  axis += static_cast<int>(std::find(group.ranges.begin(), group.ranges.end(), inner) -
                           group.ranges.begin());
  const int64_t lanes = own >= 0 ? LanesFor(inner) : 1;
  if (own >= 0) Add(OptKind::kVector, axis, lanes);
  // Steps of the innermost loop at once: enough independent sums to hide latency, or a short loop
  // whole.
  const int64_t wanted = std::max<int64_t>(1, static_cast<int64_t>(costs_.latency_ops) / results);
  const int64_t size = results * static_cast<int64_t>(body(g).ops.size() + body(g).accesses.size());
  const int64_t all = (Extent(inner) + lanes - 1) / lanes;
  int64_t steps = all;
  // A short loop that is not written out whole ends in a branch that is not foreseen.
  if (steps > 12 || size * steps > (steps <= 8 ? 600 : 400))
    steps = std::min(steps, std::max<int64_t>(wanted, size < 64 ? 2 : 1));
  if (own >= 0)
    if (const int64_t rows = WholeRows(own); rows > 1) steps = std::min(rows, all);
  if (steps > 1) Add(OptKind::kUnroll, axis, steps);
  if (const int64_t partials = std::min(wanted, steps); partials > 1)
    Add(OptKind::kGroup, axis, partials);
}

void VectorChooser::ChooseTasks() {
  // A group is computed once a task, so loops that it does not depend on may not be handed out,
  // unless before its own.
  int most = kernel_.parallel_count, count = 0;
  for (const ReduceGroup& group : kernel_.groups)
    if (const RangeSet deps = group.deps & kernel_.OutputSet(); deps != 0)
      most = std::min(most, static_cast<int>(std::bit_width(deps)));
  for (int64_t tasks = 1; count < most && (count == 0 || tasks < costs_.tasks_wanted); ++count) {
    const int64_t step = counts_[count] * (count == output_lanes_ ? LanesFor(count) : 1);
    tasks *= (Extent(count) + step - 1) / step;
  }
  if (count > 0) Add(OptKind::kThread, 0, count);
}

}  // namespace outboard::codegen
