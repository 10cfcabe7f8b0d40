// Canonicalises kernels for tuning: kernels with the same canonical form share their measurements.
// Pure functions.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"

namespace outboard::worker {

// Returns the canonical form of `kernel`, and its id. Kernels with the same form differ only in
// float constants, since a learning rate or a scale does not affect which loops are best; the form
// reveals only the shape of a tenant's kernel. Constants are renumbered so that equal ones stay
// equal and different ones stay different: the k-th distinct constant of each type, in order of
// use, becomes 1/k where it is at most 1 and k + 1 where it is larger, with its sign. 0, infinities
// and NaN stay. Each VAR is replaced by its largest value.
// Errors: as EncodeGraph (RESOURCE_EXHAUSTED for a kernel over the encoding's limits).
absl::StatusOr<EncodedGraph> CanonicalKernel(const UOp* kernel);

// True if the kernel has no constant that its author chose: then its measurements may be shared
// with other accounts, since whether they are there tells no more than that somebody computes with
// these shapes. 0 is no such constant, nor are the strides by which elements are addressed:
// factors, divisors and moduli of indices. Everything else is: a scale, a learning rate, the place
// of a slice, a position that an index is compared with. The canonical form alone would not do,
// since it keeps integers and which float constants are equal.
bool IsShareable(const UOp* kernel);

// Whether what is measured of the kernel may be shared, by its canonical form: true if `canonical`
// is one, has the id `kernel`, is no longer than kDemandBytesMax, and IsShareable. May come from a
// process that is hostile.
bool IsShareableForm(std::string_view canonical, std::string_view kernel);

}  // namespace outboard::worker
