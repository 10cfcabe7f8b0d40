// What a kernel's loops are estimated to cost: the heuristic chooses Opts by it, and the search
// tries candidates in its order. In instructions of all threads together, by the target's table.
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

  // As kernel.groups, and one more for the stores.
  const std::vector<codegen::Body>& bodies() const { return bodies_; }
  // Of the form of `index`, an i64 node of the kernel.
  const codegen::Affine& FormOf(const UOp* index) { return forms_.Of(index); }

  // Lanes of a full vector of the widest type, and of what a range fills of one.
  int lanes() const { return lanes_; }
  int LanesFor(int range) const;
  // How often all of `ranges` together run.
  double Points(codegen::RangeSet ranges) const;
  // Elements from lane to lane with `v` in lanes; 0 also where that is no constant.
  int64_t ConstantStride(const codegen::Access& access, int v);
  // A block of `v` must be a multiple of this many vectors, or all of it, for its quotients to be
  // known in each lane; 0 where blocks cannot be so long.
  int64_t WholeRows(int v) const;

  // One access of a vector with range `v` in lanes (-1: none), where it is, and where it is copied
  // to memory of the thread's own first.
  double AccessCost(const codegen::Access& access, int v);
  double CopiedAccessCost(const codegen::Access& access, int v) const;

  // The whole kernel in the loops of `plan`, which ApplyOpts has made for it. More where registers
  // do not suffice, where results wait for each other, and where threads have no task. An estimate
  // to compare plans of one kernel by.
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
