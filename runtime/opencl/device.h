// A device behind OpenCL: the first one of the first platform that has any. Its memory is shared
// virtual memory of the coarse kind (OpenCL 2.0), because addresses within a buffer must be
// arguments of kernels; a device without it is refused.
//
// Kernels are OpenCL C (CompiledKernel::Form::kOpenClC). One queue, in order.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/devices.h"

namespace outboard::opencl {

// Whether this machine has a device that MakeOpenClDevice would take.
bool IsThere();

// Errors: UNIMPLEMENTED  no library, no device, or one that lacks shared virtual memory (named)
//         INTERNAL       the driver failed, with its number
absl::StatusOr<std::unique_ptr<runtime::Device>> MakeOpenClDevice(
    const runtime::DeviceOptions& options);

}  // namespace outboard::opencl
