// Opts chosen without measuring, by estimated instructions and by what fits into caches: what a
// kernel runs with until somebody searches.
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// Legal in their order. Deterministic.
std::vector<Opt> HeuristicOpts(const LoopNest& kernel, const Target& target);

}  // namespace outboard::codegen
