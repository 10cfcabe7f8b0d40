// Sums over rows of what a product stores, in two steps: the product's kernel adds 16 rows each of
// what it computes (a store of sums, ir/op.h), and the kernel of the sum adds these. It then reads
// a sixteenth of the numbers. A gradient of a bias is such a sum.
//
// Rows are those of the product's result as it lies in memory: of the ranges that are summed over
// those with the smallest stride, as far as they are dense. The order of the additions is that of
// the product's kernel and of the sum's, each of which is fixed.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/uop.h"
#include "compiler/schedule/fuse/draft.h"

namespace outboard::schedule {

// A reduction, divided.
struct DividedSum {
  const UOp* place = nullptr;  // of the sums of some rows, by the product's ranges
  const UOp* value = nullptr;  // f32: what is added, by the product's ranges
  int64_t elements = 0;        // of the sums
  // What is read of the sums by the kernel with the reduction, and the ranges that it is added
  // over.
  const UOp* read_at = nullptr;
  std::vector<const UOp*> ranges;
};

// Divides the REDUCE_LOOP `sum`, which loads from slot `slot`, where a kernel with the output
// ranges `outputs` stores at `place`. `next_id`: of new ranges. nullopt where it is no sum of
// floats over some of the rows of the kernel, depends on anything that the kernel does not range
// over, or reads more that is as large.
std::optional<DividedSum> DivideRowSum(Graph& graph, const UOp* sum, int64_t slot,
                                       const UOp* place, const std::vector<const UOp*>& outputs,
                                       int64_t& next_id);

}  // namespace outboard::schedule
