// Kernels over the same rows become one with several stores.
//
// A row is a place of the outermost output ranges. What a kernel stores for its row another one may
// take from a register if its own output ranges are the same, or begin with these: a softmax is a
// maximum and a sum for each row, and then a store for each element of it. Code generation computes
// a reduction that depends on the row alone once a row.
//
// Joined are, in order, each kernel to one before it:
//   - one without loops, to one with the same output ranges that shares a buffer with it: the work
//     after a product of matrices;
//   - one that reads what the other stores for the same row, if both only stream their inputs: the
//     passes of a norm over a row that is in the cache from the second pass on. What is stored
//     element by element and read under another range is computed again there, if that is little;
//   - two sums over the same elements, which then are read once;
//   - one that computes a single number, to another such one.
// A product of matrices is never joined to another kernel with a loop: it has its own tiles.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/lower.h"
#include "compiler/target.h"

namespace outboard::schedule {

// A kernel that may store several values: slot i < stores of `buffers` is written, the others are
// read.
struct FusedKernel {
  const UOp* ast = nullptr;
  std::vector<const UOp*> buffers;
  int stores = 1;
};

// `kernels` is in a valid order; so is the result, though it may be another. A value that is not
// among `results` and that no other kernel reads is not stored. Where the graph is nearly full,
// kernels stay alone that would be joined elsewhere.
// Errors: RESOURCE_EXHAUSTED  writing the kernels anew takes more than limits::kGraphNodesMax nodes
absl::StatusOr<std::vector<FusedKernel>> FuseKernels(Graph& graph,
                                                     std::vector<LoweredKernel> kernels,
                                                     const absl::flat_hash_set<const UOp*>& results,
                                                     const Target& target);

}  // namespace outboard::schedule
