// The CUDA device: the first GPU that NVIDIA's driver shows this process (CUDA_VISIBLE_DEVICES
// chooses which) and that is new enough. Kernels are PTX (CompiledKernel::Form::kPtx). There is one
// in-order stream for work, and one for each download at a time.
//
// A process has one such device. Memory that comes from the driver is overwritten before its first
// use: it may hold what another process left.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/api.h"
#include "runtime/device.h"
#include "runtime/devices.h"

namespace outboard::cuda {

// OK if this machine has a driver and a device; else UNIMPLEMENTED, one line with what was found
// and what is needed.
absl::Status CheckThere();

// The GPUs that the driver shows this process and where our kernels run, without touching their
// memory; each with the variable by which another process sees it alone. Of the others `left_out`
// gets a line each. Empty: CheckThere says why.
std::vector<runtime::ListedDevice> ListDevices(std::vector<std::string>* left_out = nullptr);
std::vector<runtime::ListedDevice> ListDevicesOf(const DriverApi& api,
                                                 std::vector<std::string>* left_out = nullptr);

// Errors: UNIMPLEMENTED       as CheckThere
//         RESOURCE_EXHAUSTED  no room on the device for the context. Without pinned memory for
//                             copies the device works, slower, and `options.warn` is told
//         INTERNAL            the driver failed; in its words
absl::StatusOr<std::unique_ptr<runtime::Device>> MakeCudaDevice(
    const runtime::DeviceOptions& options);

// The same with a driver that the caller has loaded.
absl::StatusOr<std::unique_ptr<runtime::Device>> MakeCudaDeviceOf(
    const DriverApi& api, const runtime::DeviceOptions& options);

}  // namespace outboard::cuda
