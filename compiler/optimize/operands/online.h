// Sums over a loop of panels in one pass, block by block, with a running maximum (Milakov and
// Gimelshein, arXiv 1805.02867; FlashAttention-2, arXiv 2307.08691):
//
//   for each tile of rows
//     for each block of steps
//       panels of the block
//       m' = max(m, max of the block's x);  c = exp(m - m');  m = m'
//       s = s * c + sum of the block's f * exp(x - m)       for each sum, whatever f is
//
// A row of a panel then has the length of a block, whatever the loop's is. A sum that needs the
// result of another one inside of its terms waits for it: it belongs to the next phase, another
// pass over the loop, for which panels are computed again.
//
// While all x so far are -inf, exp(x - m) is taken as exp(x - 0), which is 0; if that is so at the
// end, the sums are NaN, as exp(-inf - -inf) is.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/operands/staging.h"

namespace outboard::codegen {

// Returns the nodes that are exp(x - max x), with that maximum over `range`.
absl::flat_hash_map<const UOp*, const UOp*> ExponentialsOf(const LoopNest& kernel, int range);

// Returns the kernel, in `graph`, with what does not vary along `range` taken out of the terms of
// its sums, where that is computed from other reductions over the range: the sum of e / s * v is
// that of e * v, divided by s (and 0 where a range that may be empty is). With `rounded` also where
// e / s is cast to a narrower float: e, which is at most 1, is cast instead (docs/semantics.md,
// REDUCE); and where e / s * f is cast to bf16, which has room for e * f.
const UOp* WithoutFactors(Graph& graph, const LoopNest& kernel, int range, bool rounded = false);

// Returns the phases of the reductions over `range`. With `rounded` an exponential may be cast to a
// narrower float before it is a factor. Errors: INVALID_ARGUMENT, with the reason.
absl::StatusOr<Online> PhasesOf(const LoopNest& kernel, int range, int64_t block,
                                bool rounded = false);

// Returns the layout of the running values of a reduction, in memory inside the first `level`
// output loops.
StageLayout LayOutCarried(const LoopNest& kernel, const LoopPlan& plan, const UOp* reduction,
                          size_t level);

// The output loops around the loop that is run online: those of its panels' rows.
size_t OnlineLevel(const LoopNest& kernel, const LoopPlan& plan);

}  // namespace outboard::codegen
