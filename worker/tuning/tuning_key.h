// Canonicalises kernels for tuning: kernels with the same canonical form share their measurements.
// Pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"

namespace outboard::worker {

// Returns the canonical form of `kernel`, and its id. Kernels with the same form differ only in
// float constants, since a learning rate or a scale does not affect which loops are best; the form
// reveals only the shape of a tenant's kernel. Constants are renumbered so that equal ones stay
// equal and different ones stay different: the k-th distinct constant of each type, in order of
// use, becomes the number k. 0, infinities and NaN stay. Each VAR is replaced by its largest value.
// Errors: as EncodeGraph (RESOURCE_EXHAUSTED for a kernel over the encoding's limits).
absl::StatusOr<EncodedGraph> CanonicalKernel(const UOp* kernel);

}  // namespace outboard::worker
