// Expresses an order of the output loops of a kernel as SWAP Opts. The functions that choose Opts
// use it once they know the order of loops that they want.
#pragma once

#include <vector>

#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// Appends the SWAPs of adjacent loops that bring `loops` into the order of `wanted`.
void AddSwaps(std::vector<Loop> loops, const std::vector<Loop>& wanted, std::vector<Opt>& opts);

}  // namespace outboard::codegen
