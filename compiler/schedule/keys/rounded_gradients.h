// Gradients of scores, rounded before they are multiplied with matrices of bf16 or f16. Of an
// attention whose scores are of f32, made of queries and keys of 16 bits, so are the gradients of
// scores:
//
//   dS = p (dp - sum of p dp)                      f32
//   dq = bf16 of the sum of dS / sqrt(d) k         k a cast from bf16; keys' gradients likewise
//
// No matrix unit multiplies f32 by bf16, so these two kernels would have no plan, and the attention
// would keep all its scores. Here dS is rounded first, without constant factors; the sum is
// multiplied by them: as FlashAttention does (FlashAttention-2, arXiv 2307.08691). With 1/sqrt(d)
// much of it would be below 2^-24, f16's least number. What that adds to the error is bounded in
// docs/semantics.md (Online sums). To f16 only where dS is finite if dp is (65,504 is f16's largest
// number): dp cast from f16, p divided by its row's sum, and no other factors.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/attention.h"
#include "compiler/schedule/keys/key_parts.h"
#include "compiler/target.h"

namespace outboard::schedule {

// Scores' gradients as the program has them, of f32, and what products have in their place.
struct RoundedGradient {
  const UOp* written = nullptr;
  const UOp* rounded = nullptr;  // CAST to f32 of CAST to 16 bits; of the new graph
};

// A graph, and which gradients of it were rounded.
struct RoundedGradients {
  const UOp* sink = nullptr;
  std::vector<RoundedGradient> all;
};

// Returns `sink` with gradients of scores rounded where the attention then keeps no scores
// (FindScores with `policy`), but for those of `as_written`; itself where there is none, and for
// targets other than NVIDIA's GPUs. The last results of `sink` are the maxima of `divided`
// (WithMaxima). Requires a prepared graph (prepare.h).
// Errors: RESOURCE_EXHAUSTED  a limit of the graph
absl::StatusOr<RoundedGradients> RoundGradients(Graph& graph, const UOp* sink, ScorePolicy policy,
                                                const Target& target,
                                                absl::flat_hash_set<const UOp*> as_written = {},
                                                const std::vector<DividedKeys>& divided = {});

}  // namespace outboard::schedule
