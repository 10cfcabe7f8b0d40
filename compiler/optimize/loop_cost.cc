#include "compiler/optimize/loop_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compiler/optimize/flatten.h"
#include "compiler/optimize/operands/staging.h"
#include "compiler/optimize/operands/cpu_matrix_unit.h"

namespace outboard::optimize {
namespace {

using codegen::Access;
using codegen::Body;
using codegen::LoopPlan;
using codegen::RangeSet;
using codegen::Stage;
using codegen::Tile;

bool In(RangeSet set, int range) { return range >= 0 && (set >> range & 1); }

}  // namespace

LoopCost::LoopCost(const codegen::LoopNest& kernel, const Target& target)
    : kernel_(kernel),
      target_(target),
      bodies_(FindBodies(kernel, forms_)),
      lanes_(LanesMax(kernel, target)) {}

int LoopCost::LanesFor(int range) const {
  const auto extent = static_cast<uint64_t>(kernel_.ranges[range].extent);
  return static_cast<int>(std::min<int64_t>(lanes_, std::bit_ceil(extent)));
}

double LoopCost::Points(RangeSet ranges) const {
  double points = 1;
  for (size_t i = 0; i < kernel_.ranges.size(); ++i)
    if (In(ranges, static_cast<int>(i))) points *= static_cast<double>(kernel_.ranges[i].extent);
  return points;
}

int64_t LoopCost::ConstantStride(const Access& access, int v) {
  if (In(access.irregular, v)) return 0;
  return static_cast<int64_t>(
      forms_.Of(access.index->src[1]).CoefficientOf(kernel_.ranges[v].node));
}

int64_t LoopCost::WholeRows(int v) const {
  int64_t divisor = 1;
  for (const Body& body : bodies_)
    for (const Access& access : body.accesses)
      if (In(access.divided, v)) divisor = std::max(divisor, access.divisor);
  return divisor == 1 ? 1
                      : codegen::VectorsOfWholeRows(divisor, kernel_.ranges[v].extent, LanesFor(v));
}

std::vector<Body> LoopCost::CountUnpackedAsAccesses() {
  std::vector<Body> before = bodies_;
  for (const codegen::Unpacked& unpacked : UnpackedOf(kernel_))
    for (Body& body : bodies_) {
      const auto is_of = [&](const UOp* load) {
        return std::find(unpacked.loads.begin(), unpacked.loads.end(), load) !=
               unpacked.loads.end();
      };
      const auto main = std::find_if(body.accesses.begin(), body.accesses.end(),
                                     [&](const Access& a) { return a.node == unpacked.loads[0]; });
      if (main == body.accesses.end()) continue;
      Access access = *main;
      access.node = unpacked.value;
      access.deps = kernel_.DepsOf(unpacked.value);
      access.loads = static_cast<int>(unpacked.loads.size());
      std::erase_if(body.accesses, [&](const Access& a) { return is_of(a.node); });
      for (const UOp* operation : unpacked.operations) {
        const auto one =
            std::find(body.ops.begin(), body.ops.end(), kernel_.DepsOf(operation));
        if (one == body.ops.end()) continue;
        body.ops.erase(one);
        ++access.operations;
      }
      body.accesses.push_back(access);
    }
  return before;
}

double LoopCost::AccessCost(const Access& access, int v) {
  if (access.operations > 0) {
    Access load = access;
    load.operations = 0;
    return access.operations + access.loads * AccessCost(load, v);
  }
  const double gate = access.gated ? 1 : 0;
  if (!In(access.deps, v)) return 1 + gate;
  const CostTable& costs = target_.costs;
  const double lanes = LanesFor(v);
  if (access.store) {
    return ConstantStride(access, v) == 1
               ? costs.vector_load
               : costs.scatter_per_lane * lanes + costs.far_lane * FarLanes(access, v);
  }
  if (In(access.irregular, v)) {
    if (!In(access.divided, v) || WholeRows(v) == 0) return costs.gather_per_lane * lanes + gate;
    if (access.rows && !access.gated)
      return costs.vector_load * (1 + lanes / static_cast<double>(access.divisor));
    return costs.picked_load + gate;
  }
  const int64_t stride = ConstantStride(access, v);
  if (stride == 1) return costs.vector_load + gate;
  if (stride == -1) return costs.reversed_load + gate;
  if (stride >= -4 && stride <= 4) return costs.picked_load + gate;
  return costs.load_per_lane * lanes + costs.far_lane * FarLanes(access, v) + gate;
}

double LoopCost::FarLanes(const Access& access, int v) {
  const double bytes = ByteWidth(access.node->dtype),
               line = std::abs(static_cast<double>(ConstantStride(access, v))) * bytes / 64;
  return LanesFor(v) * std::min(1.0, line);
}

double LoopCost::CopiedAccessCost(const Access& access, int v) {
  if (!In(access.deps, v)) return 1;
  const CostTable& costs = target_.costs;
  const double copy = ConstantStride(access, v) == 1 ? 2 * costs.vector_load
                                                     : costs.copy_per_element * LanesFor(v);
  return costs.vector_load +
         (copy + access.operations) / Points(kernel_.OutputSet() & ~access.deps);
}

// By range; nullptr for ranges that are not around the body.
struct LoopCost::Tiles {
  std::vector<const Tile*> of;
  int lanes_range = -1;
  double lanes = 1;

  // The values or vectors that a tile has of what depends on `deps`.
  double Pieces(RangeSet deps) const {
    double pieces = 1;
    for (size_t r = 0; r < of.size(); ++r)
      if (of[r] != nullptr && In(deps, static_cast<int>(r)))
        pieces *= static_cast<double>(of[r]->main.size());
    return pieces;
  }
  double Blocks() const {
    double blocks = 1;
    for (const Tile* tile : of)
      if (tile != nullptr) blocks *= static_cast<double>(tile->blocks());
    return blocks;
  }
};

LoopCost::Tiles LoopCost::TilesAround(const LoopPlan& plan, size_t body) const {
  Tiles tiles;
  tiles.of.resize(kernel_.ranges.size());
  const auto take = [&](const Tile& tile) {
    if (!In(bodies_[body].ranges, tile.range)) return;
    tiles.of[tile.range] = &tile;
    if (tile.lanes() <= 1) return;
    tiles.lanes_range = tile.range;
    tiles.lanes = tile.lanes();
  };
  for (const Tile& tile : plan.tiles) take(tile);
  // Its own loops, and those of reductions that it lies in.
  for (const codegen::GroupPlan& group : plan.groups)
    for (const Tile& tile : group.loops) take(tile);
  return tiles;
}

// One block of all loops around a body.
double LoopCost::StepCost(const LoopPlan& plan, size_t body, const Tiles& tiles) {
  const CostTable& costs = target_.costs;
  const Body& b = bodies_[body];
  const bool is_group = body < kernel_.groups.size();
  const int v = tiles.lanes_range;
  const RangeSet outputs = kernel_.OutputSet();
  double work = 0, held = b.accesses.empty() ? 0 : 1e9;
  for (const Access& access : b.accesses) {
    const double pieces = tiles.Pieces(access.deps);
    const bool copied = std::any_of(plan.stages.begin(), plan.stages.end(),
                                    [&](const Stage& s) { return s.load == access.node; });
    // What the copy itself costs is counted once, by CopyCost.
    work += pieces * (copied ? costs.vector_load : AccessCost(access, v));
    if (In(access.deps, v) && !copied) work += costs.stream * pieces;
    if (access.gated) work += costs.gate * tiles.Pieces(kernel_.DepsOf(access.node->src[1]));
    held = std::min(held, pieces);
  }
  for (const RangeSet deps : b.ops) work += tiles.Pieces(deps);
  for (const RangeSet deps : b.slow_ops)
    work += tiles.Pieces(deps) * costs.library_call * (In(deps, v) ? tiles.lanes : 1);
  if (!is_group) return work;

  const codegen::GroupPlan& group = plan.groups[body];
  if (group.core) {  // an instruction of it has so many products
    const double products = group.core->by == Bf16Products::kTiles ? 16 * 16 * 32 / 16 : 16 * 2;
    return Points(b.ranges) / tiles.Blocks() / products;
  }
  const double results =
      tiles.Pieces(b.ranges & outputs) * static_cast<double>(kernel_.groups[body].nodes.size());
  const double registers = results * group.partials + held + 1;
  work += costs.spill * std::max(0.0, registers - target_.vector_registers);
  // Terms of one sum wait for each other.
  const double terms = tiles.Pieces(b.ranges & ~outputs) / group.partials;
  return std::max(work, terms * costs.latency_ops);
}

double LoopCost::CopyCost(const LoopPlan& plan, const Stage& stage) const {
  const RangeSet deps = kernel_.DepsOf(stage.load);
  double copies = 1;
  std::vector<double> elements(kernel_.ranges.size());  // of each range, in one copy
  for (size_t r = 0; r < elements.size(); ++r)
    elements[r] = static_cast<double>(kernel_.ranges[r].extent);
  for (size_t i = 0; i < stage.level; ++i) {
    const codegen::Loop& loop = plan.loops[i];
    copies *= static_cast<double>(plan.trips(loop));
    elements[loop.range] =
        static_cast<double>(loop.block > 0 ? loop.block : plan.tiles[loop.range].step);
  }
  for (size_t r = 0; r < elements.size(); ++r)
    if (In(deps, static_cast<int>(r))) copies *= elements[r];
  return target_.costs.copy_per_element * copies;
}

double LoopCost::PlanCost(const LoopPlan& plan) {
  double cost = 0;
  for (size_t body = 0; body < bodies_.size(); ++body) {
    const Tiles tiles = TilesAround(plan, body);
    cost += tiles.Blocks() * StepCost(plan, body, tiles);
    // A vector of partial results is folded, once a result.
    if (In(bodies_[body].ranges & ~kernel_.OutputSet(), tiles.lanes_range))
      cost += Points(bodies_[body].ranges & kernel_.OutputSet()) * 2 * std::log2(tiles.lanes);
  }
  for (const Stage& stage : plan.stages) cost += CopyCost(plan, stage);
  const auto tasks = static_cast<double>(std::max<int64_t>(1, plan.tasks())),
             threads = static_cast<double>(std::max(1, target_.threads));
  return cost * std::ceil(tasks / threads) * threads / tasks;
}

}  // namespace outboard::optimize
