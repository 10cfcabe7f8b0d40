// Replaces the sum over keys in the gradient of an attention's softmax by a sum over columns of the
// attention's output, which is stored anyway. Of a row with weights p, their gradients dp, values
// v, the output o and its gradient g:
//
//   sum over keys of p dp  =  sum over keys of p (sum over columns of g v)
//                          =  sum over columns of g (sum over keys of p v)
//                          =  sum over columns of g o
//
// The last is a small kernel over rows of columns. The first computes every score and its gradient,
// two products of matrices, before the kernels of the gradients can begin (FlashAttention-2,
// arXiv 2307.08691, section 3.1). Weights may be scaled, masked, dropped out and rounded before the
// product with v; dp then passes through the same factors and masks. Both sums are equal but for
// rounding (docs/semantics.md, Online sums): dp is not rounded to 16 bits any more, so that the two
// sides of dp - sum of p dp stay as near to each other as f32 allows.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/attention.h"
#include "compiler/target.h"

namespace outboard::schedule {

struct GradientSumsSearch {
  // Gradients of f32, too, for tests: their kernels spill registers.
  bool of_f32 = false;
  // How many nodes are looked at, of all attentions together; an honest one takes about a hundred.
  // Behind that, and behind 16 sums of products of the same values, the graph stays as it was.
  int64_t visits_max = 1 << 20;
};

// Returns `sink` with the sums over columns of those attentions of `scores` where that is proved to
// be the same, takes less time or is asked for (`policy` kRecompute), and on NVIDIA's GPUs; itself
// where there is none. Two sources of the SINK may then be one node. What is stored of o lives
// until the gradients: whether there is memory for it is asked of the schedule (schedule.cc).
// Requires a prepared graph (prepare.h).
// Errors: RESOURCE_EXHAUSTED  a limit of the graph
absl::StatusOr<const UOp*> SumOverColumns(Graph& graph, const UOp* sink, const Scores& scores,
                                          ScorePolicy policy, const Target& target,
                                          const GradientSumsSearch& search = {});

}  // namespace outboard::schedule
