// Lowers one materialised value to a kernel: a store under output ranges, into which everything
// that is not materialised is inlined.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {

struct LoweredKernel {
  // SINK(STORE(INDEX(GLOBAL 0, offset), value)). Output ranges have the ids 0, 1 ...
  // outermost first, one for each dimension longer than 1; reduce ranges follow.
  const UOp* ast = nullptr;
  std::vector<const UOp*>
      buffers;                // the tensor node behind each GLOBAL slot; slot 0 is the value itself
  const UOp* then = nullptr;  // a second kernel, which adds to what the first one stored
};

// Writes `value` as a kernel. Loads from PARAMs and from the nodes of `stored` other than `value`
// itself; movements become index arithmetic; a load that could be out of range (PAD, collapsed
// sums) is gated. Requires: room for at least one element, a graph as Prepare leaves it.
// Memory is row-major, with the pitches of `pitches`.
// Errors: RESOURCE_EXHAUSTED  the graph would have more nodes than limits::kGraphNodesMax
absl::StatusOr<LoweredKernel> LowerKernel(Graph& graph, const UOp* value,
                                          const absl::flat_hash_set<const UOp*>& stored,
                                          const RowPitches& pitches = {});

// The scalar expression of `node` at `index` (one i64 a dimension), loads as LowerKernel makes
// them: from slots of `buffers`, to which new ones are appended. Reduce ranges have ids from
// kRangeIdInner on.
inline constexpr int64_t kRangeIdInner = 1 << 16;
absl::StatusOr<const UOp*> LowerAt(Graph& graph, const UOp* node,
                                   const std::vector<const UOp*>& index,
                                   const absl::flat_hash_set<const UOp*>& stored,
                                   const RowPitches& pitches, std::vector<const UOp*>& buffers);

// The scalar expression of `node` at `index` (one i64 a dimension), where PARAMs and REDUCEs are
// opaque loads. For finding out what a condition says about indices.
absl::StatusOr<const UOp*> IndexExpression(Graph& graph, const UOp* node,
                                           const std::vector<const UOp*>& index);

// The product that a node of a kernel sums, behind casts and conditions where it is 0 otherwise
// (padded windows have them); nullptr where it sums anything else, or is no sum.
const UOp* ProductSummed(const UOp* node);
// How many terms a kernel adds for a REDUCE_LOOP: one in each of its steps, for each of the points
// that it is computed for. Terms of the sums inside of it are not counted.
double TermsOf(const UOp* sum);
// Whether a kernel sums products of f32 in f32.
bool SumsProductsOfF32(const UOp* ast);

}  // namespace outboard::schedule
