// What work is estimated to cost, before a loop is chosen for it: the one model that scheduling
// asks. Loops are estimated in the same units by loop_cost.h, for heuristics and search. What an
// instruction costs is the target's (compiler/target.h); which sizes follow from its caches is said
// here. All estimates change speed only. Threads: pure.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::optimize {

// One operation on one element: arithmetic, a CAST or a LOAD that hits a cache; 0 for any other op.
// Transcendental operations count as what they are written out as (codegen/transcendental.h).
double OpCost(Op op, const CostTable& costs);

// The most that is worth computing again for each element instead of keeping it for a kernel that
// is there anyway, and for one that would have to be made for it.
double RecomputeForMemory(const CostTable& costs);
double RecomputeForKernel(const CostTable& costs);

// Bytes of operands that stay within reach of a core while they are used again: half of its second
// cache, but not below 1 MiB, since what such a block does not hold comes from the third cache in
// time (measured with second caches of 1 and 2 MiB: one size is right for both).
int64_t ReusedBytesMax(const Target& target);

// The shortest row of elements that is worth having in lanes: half a vector of bytes each four.
int64_t LanesMin(const Target& target);

}  // namespace outboard::optimize
