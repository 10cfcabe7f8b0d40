// From a kernel and a plan of its loops to a program, in passes that can be looked at one by one:
// what each makes is checked (spec.h), and the last is proved to stay within its buffers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/program/program.h"

namespace outboard::program {

// How a kernel's loops land on a device that runs blocks of threads. The first `block_ranges`
// output ranges are handed to blocks, as one index. Of the rest, as one index too, each thread
// computes a point: of one chunk of so many points as a block has threads, or, with `stride`, of
// all chunks one after the other. A reduction that depends on ranges of blocks alone is computed by
// all threads of a block together, in shared memory, where `together` is set.
struct ThreadMapping {
  int64_t threads = 64;  // a power of two
  int block_ranges = 0;
  bool stride = false;
  bool together = false;
};

// The mapping that suits the kernel's reductions: a block for each result of a long one, a thread
// for each point where there are many.
ThreadMapping MapToThreads(const codegen::LoopNest& kernel, int64_t threads_max);

// A program after a pass, for people and tests.
struct PassResult {
  std::string pass;
  Program program;
};

// The loops of `plan`; its tasks become blocks of one thread. Errors: UNIMPLEMENTED names what of
// the plan has no form here yet: copies of operands, panels, matrix units, blocks of loops.
//         INTERNAL       a pass has made a program that spec.h refuses, or that cannot be shown to
//                        store within its buffers
// With `passes`, what each pass made is added there.
absl::StatusOr<Program> ExpandPlan(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                                   std::vector<PassResult>* passes = nullptr);
// Blocks of threads, each of which runs plain loops. Errors: as above.
absl::StatusOr<Program> ExpandThreads(const codegen::LoopNest& kernel, const ThreadMapping& mapping,
                                      std::vector<PassResult>* passes = nullptr);

// ---- the passes, in their order
// Loops as the plan has them: results in private memory, tiles as loops that are marked.
absl::StatusOr<Program> LowerPlan(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan);
absl::StatusOr<Program> LowerThreads(const codegen::LoopNest& kernel, const ThreadMapping& mapping);
// Writes out loops marked kUnroll, and those marked kVector that have no form in lanes.
Program Unroll(const Program& program);
// Loops marked kVector become lanes.
Program Vectorize(const Program& program);
// A mask on each load that is not shown to be in range (compiler/proof).
absl::StatusOr<Program> GuardLoads(const Program& program);
// What depends on no loop around it moves before that loop.
Program Hoist(const Program& program);
// What nobody uses goes.
Program DropUnused(const Program& program);

}  // namespace outboard::program
