// Views of buffers for the tensor memory accelerator (CompiledKernel::maps), as the driver encodes
// them: 128 bytes that are a kernel's parameter.
#pragma once

#include "absl/status/status.h"
#include "compiler/compiled_kernel.h"
#include "runtime/cuda/driver_context.h"

namespace outboard::cuda {

// Returns OK if the driver and the device know views, and those of the kernel have a meaning and
// can be encoded: of `memory`, which is the device's, in place of the buffers, which nobody knows
// when a kernel is loaded. Where that is refused, another form of the kernel is left; at the launch
// there is none.
// Errors: UNIMPLEMENTED     a driver without cuTensorMapEncodeTiled (before CUDA 12), a device
//                           before sm_90
//         INVALID_ARGUMENT  a view that is none: its rule, and the value
//         as EncodeMap
absl::Status CheckMaps(DriverContext& context, const CompiledKernel& kernel, CUdeviceptr memory);

// Encodes a view of the buffer at `address`. Errors: as DriverContext::Check; the driver refuses an
// address that is no multiple of 16, and what its version of the rules for views does not allow.
absl::Status EncodeMap(DriverContext& context, const MappedTensor& map, CUdeviceptr address,
                       CUtensorMap* out);

}  // namespace outboard::cuda
