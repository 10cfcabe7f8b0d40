// Which kernels are tuned as one.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"

namespace outboard::worker {

// A kernel that stands for all which are tuned as one, with its id. They differ in float constants
// alone, since a learning rate or a scale decides nothing about the best loops; nothing of whoever
// wrote the kernel is left but its shape. Constants that are equal, or not, stay so: the k-th
// different one of each type, in the order of use, becomes the number k. 0, infinities and NaN
// stay. Each VAR has its largest value.
// Errors: as EncodeGraph (RESOURCE_EXHAUSTED for a kernel over the encoding's limits).
absl::StatusOr<EncodedGraph> CanonicalKernel(const UOp* kernel);

}  // namespace outboard::worker
