// Expresses an order of the output loops of a kernel as SWAP Opts. The functions that choose Opts
// use it once they know the order of loops that they want.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// Appends the SWAPs of adjacent loops that bring `loops` into the order of `wanted`.
void AddSwaps(std::vector<Loop> loops, const std::vector<Loop>& wanted, std::vector<Opt>& opts);

// Appends the BLOCKs of `blocks`, and SWAPs and a THREAD that bring the loops into an order in
// which operands that depend on `copied` are copied once for all that reads them. From outside: the
// ranges of `copied`, blocks, the copies, all other ranges, `last`. Returns the copies' level.
int64_t AddLoopsAroundCopies(const LoopNest& kernel, RangeSet copied,
                             const std::vector<Loop>& blocks, int last, std::vector<Opt>& opts);

}  // namespace outboard::codegen
