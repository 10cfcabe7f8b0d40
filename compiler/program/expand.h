// Expands a kernel and a plan of its loops to a program, in passes that can be inspected one by
// one: the result of each is checked (spec.h), and the last is proved to stay within its buffers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/program.h"

namespace outboard::program {

// Maps a kernel's loops to a device that runs blocks of threads. The first `block_ranges` output
// ranges, flattened to one index, are distributed over blocks. The other output ranges, flattened
// too, are divided into chunks of `threads` points, one point per thread: a block computes one
// chunk or, with `stride`, all chunks one after the other. With `together`, all threads of a block
// compute a reduction that depends on ranges of blocks alone together, in shared memory. A thread's
// point may be several consecutive `columns` of the last output range: of a kernel with sequences.
struct ThreadMapping {
  int64_t threads = 64;  // a power of two
  int block_ranges = 0;
  bool stride = false;
  bool together = false;
  int64_t columns = 1;  // divides the range's extent
};

// Chooses the mapping by the kernel's reductions: a block for each result of a long reduction, a
// thread for each point if there are many.
ThreadMapping MapToThreads(const codegen::LoopNest& kernel, int64_t threads_max);

// The mapping for a kernel whose threads by MapToThreads are not proved to store within its
// buffers: the threads of a block have the points of the last range alone, whose number is not
// divided by axes. One thread where that range is of one point.
ThreadMapping MapLastRangeToThreads(const codegen::LoopNest& kernel, int64_t threads_max);

// A program after a pass, for people and tests.
struct PassResult {
  std::string pass;
  Program program;
};

// Expands the loops of `plan`: its tasks become blocks, of one thread, or with `plan.blocks` of the
// threads that its Opts say (optimize/threads). What stands before the block's number depends on
// none and stores to no buffer.
// Errors: RESOURCE_EXHAUSTED  too many instructions
//         INTERNAL            a pass has made a program that spec.h refuses, or that cannot be
//                             shown to store within its buffers
// Appends the result of each pass to `passes`, unless that is null.
absl::StatusOr<Program> ExpandPlan(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                                   std::vector<PassResult>* passes = nullptr);
// Expands a kernel without Opts to blocks of threads, each of which runs plain loops. Errors: as
// above.
absl::StatusOr<Program> ExpandThreads(const codegen::LoopNest& kernel, const ThreadMapping& mapping,
                                      std::vector<PassResult>* passes = nullptr);
// Expands a product of matrices to blocks of threads with matrix units. Errors: as above.
absl::StatusOr<Program> ExpandMma(const codegen::LoopNest& kernel, const codegen::MmaPlan& plan,
                                  std::vector<PassResult>* passes = nullptr);

// Expands one to blocks of warpgroups (hopper/plan.h). Errors: as above.
struct HopperPlan;
absl::StatusOr<Program> ExpandHopper(const codegen::LoopNest& kernel, const HopperPlan& plan,
                                     std::vector<PassResult>* passes = nullptr);

// ---- the passes, in their order

// Lower to loops: results of reductions lie in private memory, tiles become marked loops.
absl::StatusOr<Program> LowerPlan(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan);
absl::StatusOr<Program> LowerThreads(const codegen::LoopNest& kernel, const ThreadMapping& mapping);
absl::StatusOr<Program> LowerMma(const codegen::LoopNest& kernel, const codegen::MmaPlan& plan);
// LowerHopper is in hopper/plan.h, those of attention in online/plan.h.
// Divides sums by constants term by term where that is the same (passes/divisions.cc).
Program SimplifyDivisions(const Program& program);
// Unrolls loops marked kUnroll, and those marked kVector that cannot be vectorised.
Program Unroll(const Program& program);
// Turns loops marked kVector into vector instructions.
Program Vectorize(const Program& program);
// Rebuilds the index of each access as a sum of the terms of one scope after the other, outermost
// first, and a constant (passes/addresses.cc).
Program AddressForm(const Program& program);
// Compares and converts vectors of i64 as vectors of i32 where their numbers fit.
Program NarrowLanes(const Program& program);
// Moves loop-invariant instructions out of loops, and before the SPECIAL of blocks what is the same
// for all of them.
Program Hoist(const Program& program);
// Removes instructions whose value is not used.
Program DropUnused(const Program& program);
// Adds a mask to the loads and copies `unproved`, which are not proved to be in range
// (compiler/proof). Errors: INTERNAL  one of them is a store, or reads memory of the program's own
absl::StatusOr<Program> GuardLoads(const Program& program, const std::vector<ValueId>& unproved);
// Lets a branch skip long arithmetic that is needed only where a condition holds
// (passes/rare_work.cc). Comes last: Hoist would move it out again.
Program BranchAroundRareWork(const Program& program);

}  // namespace outboard::program
