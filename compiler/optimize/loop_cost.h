// Estimates the cost of a kernel's loops: the heuristic chooses Opts by it, and the search tries
// candidates in its order. The unit is instructions of all threads together, weighted by the
// target's cost table.
#pragma once

#include <vector>

#include "compiler/kernel/access_profile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/target.h"

namespace outboard::optimize {

// The costs of one kernel on one target; both outlive it. Threads: one at a time.
class LoopCost {
 public:
  LoopCost(const codegen::LoopNest& kernel, const Target& target);

  // One for each of kernel.groups, and one more for the stores.
  const std::vector<codegen::Body>& bodies() const { return bodies_; }
  // Returns the affine form of `index`, an i64 node of the kernel.
  const codegen::Affine& FormOf(const UOp* index) { return forms_.Of(index); }

  // Counts what is unpacked from loads as one access, whose node is the value
  // (operands/staging.h), instead of its loads and operations. Returns what the bodies were.
  std::vector<codegen::Body> CountUnpackedAsAccesses();
  void Restore(std::vector<codegen::Body> bodies) { bodies_ = std::move(bodies); }

  // Lanes of a full vector of the widest type, and the lanes that a range fills of it.
  int lanes() const { return lanes_; }
  int LanesFor(int range) const;
  // How often all of `ranges` together run.
  double Points(codegen::RangeSet ranges) const;
  // Distance in elements from lane to lane with range `v` in lanes; 0 also if it is not constant.
  int64_t ConstantStride(const codegen::Access& access, int v);
  // A block of range `v` must be a multiple of this many vectors, or the whole range, for its
  // quotients to be known in each lane; 0 if blocks cannot be that long.
  int64_t WholeRows(int v) const;

  // Cost of one vector access with range `v` in lanes (-1: none): in place, and if it is first
  // copied to memory of the thread's own.
  double AccessCost(const codegen::Access& access, int v);
  double FarLanes(const codegen::Access& access, int v);  // that are alone in their cache line
  double CopiedAccessCost(const codegen::Access& access, int v);

  // Cost of the whole kernel with the loops of `plan`, made by ApplyOpts. Adds costs for register
  // spills, for dependent results that wait for each other, and for threads without a task. Only
  // for comparing plans of one kernel.
  double PlanCost(const codegen::LoopPlan& plan);

 private:
  struct Tiles;  // of all ranges around a body
  Tiles TilesAround(const codegen::LoopPlan& plan, size_t body) const;
  double StepCost(const codegen::LoopPlan& plan, size_t body, const Tiles& tiles);
  double CopyCost(const codegen::LoopPlan& plan, const codegen::Stage& stage) const;

  const codegen::LoopNest& kernel_;
  const Target& target_;
  codegen::AffineForms forms_;
  std::vector<codegen::Body> bodies_;
  int lanes_ = 1;
};

}  // namespace outboard::optimize
