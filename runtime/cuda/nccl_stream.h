// The stream of a CUDA device on which NCCL queues transfers, with a driver that the caller has
// loaded (runtime/collective/nccl_stream.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/collective/nccl.h"
#include "runtime/cuda/api.h"

namespace outboard::cuda {

// Errors: RESOURCE_EXHAUSTED, INTERNAL of the driver
absl::StatusOr<std::unique_ptr<collective::NcclStream>> MakeNcclStreamOf(const DriverApi& api);

}  // namespace outboard::cuda
