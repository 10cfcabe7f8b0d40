// Arithmetic on dimensions. Sums are brought together so far that what a PAD adds a SHRINK takes
// away again: (n0 + 1) + (63 - n0) is the number 64, and (n0 + 3) - 3 is n0.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard {

// a + b and a - b; makes expressions in `graph` where the result is no number. Where nothing can be
// brought together the result is ADD(a, b), or ADD(a, NEG(b)), as it stands.
// Errors: INVALID_ARGUMENT    numbers whose result does not fit 64 bits
//         RESOURCE_EXHAUSTED  as Graph::Make
absl::StatusOr<Dim> AddDims(Graph& graph, const Dim& a, const Dim& b);
absl::StatusOr<Dim> SubtractDims(Graph& graph, const Dim& a, const Dim& b);

// Whether a <= b for every binding. Requires both to be at least 0. False where it cannot be shown.
absl::StatusOr<bool> AtMost(Graph& graph, const Dim& a, const Dim& b);

}  // namespace outboard
