// Chooses Opts without measuring, by estimated instruction counts and by cache sizes. A kernel runs
// with these until a search (compiler/search) finds better ones.
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// What each run of a kernel must save for an operation to be written out once more: LLVM takes
// 60,000 instructions for it, and a kernel is taken to run two thousand times (decision 179).
inline constexpr double kCodePrice = 30;

// Returns Opts that are legal in this order. Deterministic. `code_price` is for tiles alone: lanes
// and partial sums, which results depend on, are the same at each price. 0: LLVM takes no time.
std::vector<Opt> HeuristicOpts(const LoopNest& kernel, const Target& target,
                               double code_price = 0);  // operations of a run, for one written out

}  // namespace outboard::codegen
