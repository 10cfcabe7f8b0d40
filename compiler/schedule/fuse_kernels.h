// Fuses kernels that iterate over the same rows into one kernel with several stores.
//
// A row is one position of the outermost output ranges. A consumer can take a row that its producer
// stores from a register if the consumer's output ranges equal or begin with the producer's. A
// softmax is the example: a maximum and a sum per row, then a store per element of the row. A
// reduction that depends on the row alone is computed once per row.
//
// Each kernel is tried against those before it, in order. Fused are:
//   - a kernel without loops, into one with the same output ranges that shares a buffer with it:
//     the epilogue of a matrix product;
//   - a consumer of what the producer stores for the same row, if both only stream their inputs:
//     the passes of a norm, which find the row in the cache from the second pass on. A value that
//     is stored per element but read under another range is recomputed there if that is cheap;
//   - two sums over the same elements, which are then read once;
//   - kernels that each compute a single number.
// A matrix product is not fused with another kernel that has a loop, since it has tiles of its own;
// but two kernels of an attention are that share a score. And it may add some rows of its result
// for a kernel that adds all of them (fuse/row_sums.h).
//
// A kernel that reads what a transfer receives waits for the kernel that stores what it sends
// (collective/cut.h). Of kernels that could be next, one that waits for fewer transfers goes first.
#pragma once

#include <functional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/collective/cut.h"
#include "compiler/schedule/lower.h"
#include "compiler/target.h"

namespace outboard::schedule {

// A kernel that may store several values: it writes buffers[i] for i < stores and reads the others.
struct FusedKernel {
  const UOp* ast = nullptr;
  std::vector<const UOp*> buffers;
  int stores = 1;
};

// Whether the target computes a product's kernel with stores of sums (ir/op.h). Null: none.
using ComputesSums = std::function<bool(const UOp* kernel)>;

// Returns the fused kernels. `kernels` must be in a valid order; the result is in a valid order
// too, perhaps a different one. Drops the store of a value that is not in `results` and that no
// other kernel reads. Fuses less when the graph is close to its node limit.
// Errors: RESOURCE_EXHAUSTED  the rewritten kernels have more than limits::kGraphNodesMax nodes
absl::StatusOr<std::vector<FusedKernel>> FuseKernels(Graph& graph,
                                                     std::vector<LoweredKernel> kernels,
                                                     const absl::flat_hash_set<const UOp*>& results,
                                                     const Target& target,
                                                     const SentBefore& sent = {},
                                                     const ComputesSums& computes_sums = {});

// What the graph allows (docs/semantics.md, Matrix units of GPUs), its kernels say: those that sum
// products of f32. Others are the same with and without, so that they are compiled once.
void AllowTf32(Graph& graph, std::vector<FusedKernel>& kernels);

}  // namespace outboard::schedule
