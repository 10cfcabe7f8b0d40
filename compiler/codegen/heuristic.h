// Opts chosen without measuring, by estimated instructions and by what fits into caches: what a
// kernel runs with until somebody searches.
#pragma once

#include <vector>

#include "compiler/codegen/kernel.h"
#include "compiler/codegen/opt.h"
#include "compiler/codegen/plan.h"

namespace outboard::codegen {

// Legal in their order; none where machine.no_opt is set. Deterministic.
std::vector<Opt> HeuristicOpts(const Kernel& kernel, const Machine& machine);

}  // namespace outboard::codegen
