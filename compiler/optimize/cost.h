// Estimates the cost of work before its loops are chosen: the cost model of scheduling. loop_cost.h
// estimates loops in the same units, for heuristics and search. The costs of instructions are in
// the target (compiler/target.h); the sizes derived from its caches are defined here. All estimates
// affect speed only. Threads: pure.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::optimize {

// Returns the cost of one operation on one element: arithmetic, a CAST or a LOAD that hits a cache;
// 0 for any other op. Transcendental operations cost as much as the arithmetic that they decompose
// into (kernel/decompose_math.h).
double OpCost(Op op, const CostTable& costs);

// Returns how much an operation adds to a kernel's code: its cost, but of a function of f64 the
// operations that it is decomposed into (kernel/decompose_math_f64.h), most of which a kernel may
// skip where it runs.
double OpSize(Op op, DType dtype, const CostTable& costs);

// The most operations of one kernel, counted by OpSize: a longer one takes seconds to compile. It
// is a fifth of limits::kKernelNodesMax, since indices and masks are not counted.
inline constexpr double kKernelSizeMax = 4000;

// The most loops of reductions that a schedule puts into one kernel: half of
// limits::kKernelRangesMax, which leaves room for those over its results, up to two for each axis.
inline constexpr int kKernelLoopsMax = 32;

// The most movements through which a kernel finds an element, one on top of the other. Real models
// have some ten; each adds up to a division and a remainder for every dimension.
inline constexpr int kKernelMovementsMax = 256;

// The largest cost per element at which recomputing a value is better than materialising it: in a
// kernel that exists anyway, and in one that would be needed only for this value.
double RecomputeForMemory(const CostTable& costs);
double RecomputeForKernel(const CostTable& costs);

// How many rows of a product share what it costs to unpack an element of the other operand from
// fewer bytes: those of a tile (docs/decisions/180-few-rows-by-packed-weights.md).
double RowsOfUnpacked(const Target& target);

// Bytes of operands that stay close to a core while they are reused: half of its L2 cache, but at
// least 1 MiB, since the part that does not fit arrives from the L3 cache in time (measured with L2
// caches of 1 and 2 MiB: one size is right for both).
int64_t ReusedBytesMax(const Target& target);

// The shortest row of elements that is worth vectorising: half a vector, at four bytes per element.
int64_t LanesMin(const Target& target);

}  // namespace outboard::optimize
