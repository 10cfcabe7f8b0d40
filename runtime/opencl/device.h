// The OpenCL device: the first device of the first platform that has any. It uses coarse-grained
// shared virtual memory (OpenCL 2.0), because addresses within a buffer must be kernel arguments; a
// device without it is refused.
//
// Kernels are OpenCL C (CompiledKernel::Form::kOpenClC). There is one in-order queue.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/devices.h"

namespace outboard::opencl {

// OK if this machine has a device that MakeOpenClDevice accepts; else its UNIMPLEMENTED.
absl::Status CheckThere();

// Errors: UNIMPLEMENTED  no library, no device, or a device without shared virtual memory (named)
//         INTERNAL       the driver failed; with its error number
absl::StatusOr<std::unique_ptr<runtime::Device>> MakeOpenClDevice(
    const runtime::DeviceOptions& options);

}  // namespace outboard::opencl
