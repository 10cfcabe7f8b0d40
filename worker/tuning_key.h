// Which kernels are tuned as one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::worker {

// 32 bytes that are equal for kernels which differ in their float constants alone: a learning rate
// or a scale decides nothing about the best loops. Constants that are equal, or not, stay so: the
// k-th different one of each type, in the order of use, counts as the number k.
// Errors: as EncodeGraph (RESOURCE_EXHAUSTED for a kernel over the encoding's limits).
absl::StatusOr<std::string> TuningId(const UOp* kernel);

}  // namespace outboard::worker
