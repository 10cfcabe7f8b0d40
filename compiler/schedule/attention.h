// Attention without its matrix of scores: finds values that are recomputed at each use although
// storing them would take fewer operations.
//
// The scores are a matrix product with more elements than either operand, plus everything computed
// from it element by element: masks, exponentials, weights, and their gradients. They are not
// materialised if each of them ends in a sum or maximum over one axis, one of those is the
// maximum at the start of a softmax, and one is again a matrix product. Only the maxima and sums
// are stored, one number per row, so memory grows with the length of a sequence instead of its
// square. On processors the kernels compute the scores of a few rows at a time in memory of the
// thread's own (compiler/optimize/operands/panel.h): whole rows where they fit a cache, so that
// each operation of the softmax is the one in the graph, else in blocks
// (compiler/optimize/operands/online.h). On NVIDIA's GPUs warps compute them in registers
// (compiler/program/online/plan.h).
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

// Which scores are recomputed: none, all that can be, or those of which that takes less time than
// to store and load them.
enum class ScorePolicy { kKeep, kRecompute, kByCost };

// Values that are not to be materialised, by the attention that they are of: scores that are
// computed from each other.
struct Scores {
  // Scores, and what is computed from them element by element: the number of their attention.
  absl::flat_hash_map<const UOp*, int> attention_of;
  absl::flat_hash_set<const UOp*> stored;  // scores that are materialised after all
  absl::flat_hash_set<const UOp*> joins;   // what joins parts of keys

  // With what has as many elements and scores are computed from, such as masks and the terms of the
  // products.
  absl::flat_hash_set<const UOp*> All() const;
  absl::flat_hash_set<int> Attentions() const;
  // Moves the scores of these attentions to `stored`.
  void Store(const absl::flat_hash_set<int>& attentions);
};

// Returns the scores of `sink` that are not to be materialised. Those that `scores_of_parts` are
// computed from (keys/key_parts.h) may have no more elements than their matrices, as a decoded
// token's, and what joins the parts of these alone is not materialised, either. Requires a prepared
// graph (prepare.h).
Scores FindScores(const UOp* sink, ScorePolicy policy, const Target& target,
                  const absl::flat_hash_set<const UOp*>& scores_of_parts = {});

}  // namespace outboard::schedule
