// Arithmetic on dimensions. Sums are simplified far enough that a SHRINK cancels a PAD: (n0 + 1) +
// (63 - n0) is the number 64, and (n0 + 3) - 3 is n0.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard {

// Returns a + b or a - b; makes expressions in `graph` if the result is not a number. If nothing
// can be simplified, the result is ADD(a, b) or ADD(a, NEG(b)).
// Errors: INVALID_ARGUMENT    numbers whose result does not fit 64 bits
//         RESOURCE_EXHAUSTED  as Graph::Make
absl::StatusOr<Dim> AddDims(Graph& graph, const Dim& a, const Dim& b);
absl::StatusOr<Dim> SubtractDims(Graph& graph, const Dim& a, const Dim& b);

// A dimension as a product: n * m * 6 is {6, {n, m}}, and so are n * 2 and m * 3 together. i64
// wraps, but a dimension does not, as its bounds say, unless it is 0 whatever has wrapped below.
struct DimFactors {
  int64_t number = 1;
  std::vector<const UOp*> expressions;
  int steps = 0;  // that it took to find them
};
DimFactors FactorsOf(const Dim& dim);

// Returns whether a <= b is proved for every binding. Requires both to be at least 0.
absl::StatusOr<bool> AtMost(Graph& graph, const Dim& a, const Dim& b);

}  // namespace outboard
