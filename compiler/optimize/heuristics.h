// Chooses Opts without measuring, by estimated instruction counts and by cache sizes. A kernel runs
// with these until a search (compiler/search) finds better ones.
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// Returns Opts that are legal in this order. Deterministic.
std::vector<Opt> HeuristicOpts(const LoopNest& kernel, const Target& target);

}  // namespace outboard::codegen
