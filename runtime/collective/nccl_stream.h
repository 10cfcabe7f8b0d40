// The stream of this process's GPU on which NCCL queues transfers (nccl.h).
//
// It shares the context of the device that runtime::MakeDevice makes, and waits for none of its
// work: whoever starts a transfer has synchronised with it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/collective/nccl.h"

namespace outboard::collective {

// Of the first GPU that NVIDIA's driver shows this process. Implemented in runtime/cuda/.
// Errors: UNIMPLEMENTED  no driver or no GPU; RESOURCE_EXHAUSTED, INTERNAL of the driver
absl::StatusOr<std::unique_ptr<NcclStream>> MakeNcclStream();

}  // namespace outboard::collective
