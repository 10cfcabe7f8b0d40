// An order of output loops as SWAP Opts.
#pragma once

#include <vector>

#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// Adds the SWAPs of neighbours that make `loops` the same loops in the order of `wanted`.
void AddSwaps(std::vector<Loop> loops, const std::vector<Loop>& wanted, std::vector<Opt>& opts);

}  // namespace outboard::codegen
