// Which devices there are, by the names that OUTBOARD_DEVICE takes, and how to make one:
//
//   cpu     the host's processor (runtime/cpu); what is used where nothing else is said
//   far     a device for tests (runtime/far): the host cannot address its memory, and everything
//           runs late
//   opencl  the first OpenCL device (runtime/opencl); only there where the machine has one
//
// To add a device: a folder with an implementation of runtime::Device, and a line in devices.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace outboard::runtime {

inline constexpr std::string_view kCpu = "cpu";

struct DeviceOptions {
  int threads = 0;               // of the CPU; 0: one a processor
  int64_t memory_bytes_max = 0;  // 0: DefaultMemoryBytesMax, or what the device has if it is less
};

// Three quarters of the machine's memory, since the system and whatever else runs here need some.
int64_t DefaultMemoryBytesMax();

// The names of those that are there. Looks for platforms each time; the first search takes long
// where a driver is large.
std::vector<std::string> DeviceKinds();

// Whether there is a device of this name. Does not look for other devices if there is.
// Errors: INVALID_ARGUMENT  there is none; lists those that are there
absl::Status CheckDeviceKind(std::string_view kind);

// Errors: as CheckDeviceKind; UNIMPLEMENTED  a device that lacks what every kernel needs
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(std::string_view kind,
                                                   const DeviceOptions& options);

std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options);

// Whether kernels of the CPU device may use the processor's tiles (AMX): the system must allow it.
bool CpuOffersTiles();

}  // namespace outboard::runtime
