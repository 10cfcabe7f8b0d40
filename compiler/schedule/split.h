// Splits a large sum into two steps: a kernel of partial sums, which are materialised, and a kernel
// that adds those.
//
// Threads share a kernel by its results, so a sum over many elements with few results is split. So
// is a sum of products whose operands do not fit a cache as a whole but do in parts (the gradient
// of a convolution's weights). The number of parts follows from the shapes alone, so the bits of
// the result do not depend on the number of threads.
//
// On GPUs the class of the device decides, too. A product of matrices is split where it has fewer
// tiles of results than there are multiprocessors, unless its kernel divides its sums among blocks
// itself and nearly as far. Any other reduction is split where it has blocks for less than two on
// each multiprocessor: 32 results are a block, or a row where rows are added. Reductions of one
// shape that no other large one waits for are one launch (launches/), and have blocks together.
// So are, of a decoded token's attention, the maxima of scores and the sums of their exponentials
// of very many keys. Its sum over keys of weights times values is split on processors, too.
// Where a GPU's multiprocessors are not counted, sums are divided as on processors.
#pragma once

#include <functional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

// In how many parts the target's kernel adds a sum of products by itself, by blocks that work
// together; 1: in one. `reduce` is the sum with inputs in the place of its operands.
using PartsOfSum = std::function<int64_t(const UOp* reduce)>;

// Returns `sink` with such REDUCEs split. Leaves out one-hot sums, which are loads, and sums over
// dimensions made of VARs, whose number of partial sums would vary, but for those over keys, which
// are divided by their largest number. Partial sums of narrow floats are f32. Requires a prepared
// graph (prepare.h). Sums of exponentials of `scores_of_parts` (keys/key_parts.h), which are of a
// part already, stay whole. `shares_launches`: whether kernels of one text may be one launch, as
// those of graphs without transfers are.
// Errors: RESOURCE_EXHAUSTED  a limit of the graph
absl::StatusOr<const UOp*> SplitReductions(
    Graph& graph, const UOp* sink, const Target& target, const PartsOfSum& parts_of_sum = nullptr,
    const absl::flat_hash_set<const UOp*>& scores_of_parts = {}, bool shares_launches = true);

}  // namespace outboard::schedule
