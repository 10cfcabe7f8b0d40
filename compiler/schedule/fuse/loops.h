// Loops of two kernels that are being fused: which of the guest's are loops of the host's, so that
// both run in one.
// Functions of a graph that they may add nodes to.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/uop.h"
#include "compiler/schedule/fuse/draft.h"

namespace outboard::schedule {

// The same loops of reductions under the ids `next_id`, next_id + 1 ..., after which it is the next
// id that is free.
const UOp* WithLoopIds(Graph& graph, const UOp* root, int64_t& next_id);

// Loops of `value` as loops of the host, where it has one of the same length at the same depth.
// `all`: cleared where it has none for some loop.
const UOp* WithLoopsOf(Graph& graph, const Draft& host, const UOp* value, bool& all);

// Loops of `value` over rows of scores as those of the host, so that both read one copy of a row.
const UOp* WithScoreLoopsOf(Graph& graph, const Draft& host, const UOp* value);

// Whether both read two inputs that are the same: rows of both matrices that scores are products
// of, for example, which are then computed once.
bool SharesTwo(const Draft& host, const Draft& guest);

// Whether `value`, whose loops are the host's, computes a score that the host computes. Gradients
// of queries and of keys read the same matrices, but a score of one kernel's row and step is
// another one in the other: together they would save nothing, and run the steps that either's mask
// leaves.
bool SharesScore(Graph& graph, const Draft& host, const UOp* value);

// The guest with its output ranges in the host's order, where both are kernels of scores of the
// same rows: gradients of values are often stored transposed. nullopt where the order is the same,
// or the ranges are not.
std::optional<Draft> WithOrderOf(Graph& graph, const Draft& host, const Draft& guest);

}  // namespace outboard::schedule
