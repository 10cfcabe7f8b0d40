// Lists the devices by the names that OUTBOARD_DEVICE takes, and makes them:
//
//   cpu     the host's processor (runtime/cpu); the default
//   far     a device for tests (runtime/far): the host cannot address its memory, and all work runs
//           as late as possible
//   opencl  the first OpenCL device (runtime/opencl), if the machine has one
//   cuda    the first NVIDIA GPU (runtime/cuda), if the machine has one and its driver
//
// To add a device: a folder with an implementation of runtime::Device, and a line in devices.cc.
// One with a driver: worker::NeedsDriver (worker/sandbox/granted_parts.cc), too, since drivers
// reserve more address space than an executor otherwise may, and open files of the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace outboard::runtime {

inline constexpr std::string_view kCpu = "cpu";
inline constexpr std::string_view kFar = "far";
inline constexpr std::string_view kOpenCl = "opencl";
inline constexpr std::string_view kCuda = "cuda";

struct DeviceOptions {
  int threads = 0;               // of the CPU; 0: one per processor
  int64_t memory_bytes_max = 0;  // 0: DefaultMemoryBytesMax; OpenCL, CUDA: what the device has
  // Called with one line, once, where the device works but slower than it could. Any thread, and it
  // must not call the device. Empty: nobody is told.
  std::function<void(std::string_view line)> warn = nullptr;
};

// A device with memory of its own, of which a process has one and a device one process.
struct ListedDevice {
  DeviceProperties properties;
  std::vector<std::string> environment;  // NAME=VALUE: with it a process has this device
};

// Those of this kind, without making them; empty for kinds whose processes share the host's
// processor and memory (all but cuda). `left_out` gets a line for each that is there and for which
// there are no kernels, or that does not answer.
std::vector<ListedDevice> ListDevices(std::string_view kind,
                                      std::vector<std::string>* left_out = nullptr);

// Three quarters of the machine's memory; the rest is for the system and other processes.
int64_t DefaultMemoryBytesMax();

// Returns the names of the devices of this machine. Queries the platforms at each call; the first
// query is slow if a driver is large.
std::vector<std::string> DeviceKinds();

// Checks that this machine has the device `kind`. Lists the other devices only if it has not.
// Errors: INVALID_ARGUMENT  no such device: in one line why not, if it has a driver, and those of
//                           this machine
absl::Status CheckDeviceKind(std::string_view kind);

// Why this machine has not the device `kind`, in one line, without a look at the others.
// Errors: INVALID_ARGUMENT  there is no such kind; else those of the device's driver
absl::Status TryDeviceKind(std::string_view kind);

// Errors: as CheckDeviceKind; UNIMPLEMENTED  the device lacks a feature that every kernel needs
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(std::string_view kind,
                                                   const DeviceOptions& options);

std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options);

// True if kernels of the CPU device may use the processor's tile registers (AMX): the processor has
// them and the system grants them to this process.
bool CpuOffersTiles();

}  // namespace outboard::runtime
