// Attention without its matrix of scores: which values are computed where they are read, though
// keeping them would take fewer operations.
//
// Scores are a product of matrices that has more elements than either of them, and all that is
// computed from it element by element: masks, exponentials, weights, and their gradients. They are
// not kept where every one of them ends in a sum or a maximum over one axis, one of these is the
// maximum that a softmax begins with, and one is a product with a matrix again. What is kept are
// maxima and sums, a number for each row: memory grows with the length of a sequence and not with
// its square. The kernels compute scores for a few rows at a time, in memory of the thread's own
// (compiler/optimize/panel.h). Nothing is rescaled as in the online softmax of Milakov and
// Gimelshein (arXiv 1805.02867) and FlashAttention (arXiv 2205.14135): a row of scores fits a
// cache, so every operation of the softmax is the one that was written, also for rows that are
// masked everywhere.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

// The scores of `sink` that need not be kept. Requires a graph as Prepare leaves it.
absl::flat_hash_set<const UOp*> FindScores(const UOp* sink);

}  // namespace outboard::schedule
