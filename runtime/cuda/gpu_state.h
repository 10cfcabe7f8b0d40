// Reads what a GPU runs at from NVIDIA's management library (NVML), whose few functions are
// declared here and loaded when they are first needed, as the driver's are (api.h). The library
// comes with the driver, but a machine or a container may well have one without the other.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace outboard::cuda {

// The library: OUTBOARD_NVML, or libnvidia-ml.so.1.
std::string ManagementLibrary();

// One GPU, as the management library knows it. Threads: one at a time.
class GpuState {
 public:
  // Loads `library`, which stays loaded, and finds the GPU at this place of the bus
  // ("0000:1B:00.0"), by which the driver and the library mean the same one.
  // Errors: UNIMPLEMENTED  one line: no such library, a function that it lacks, or in its words
  //                        why it does not start or know the GPU
  static absl::StatusOr<GpuState> Open(const std::string& library, const std::string& bus_id);

  // What a GPU does not tell is 0, as is a reading that can be none.
  // Errors: UNIMPLEMENTED  it tells no clock; in the library's words
  absl::StatusOr<runtime::DeviceState> Read() const;

 private:
  struct Api;
  GpuState(std::shared_ptr<const Api> api, void* gpu) : api_(std::move(api)), gpu_(gpu) {}

  std::shared_ptr<const Api> api_;
  void* gpu_;  // the library's handle
};

// Reads a GPU's state on threads of its own, since the library may wait for its driver for ever: a
// reading that is not done in time is given up, and its thread left alone.
// Threads: one at a time.
class StateReader {
 public:
  // The library's start takes seconds on a machine of many GPUs, a reading milliseconds.
  static constexpr std::chrono::milliseconds kWithin{10'000};

  StateReader(std::string library, std::string bus_id, std::chrono::milliseconds within = kWithin);

  // Errors: as GpuState::Open and GpuState::Read, and UNIMPLEMENTED where the library does not
  //         answer. The first one is for good
  absl::StatusOr<runtime::DeviceState> Read();

 private:
  struct Gpu;  // of the thread that reads, alone
  const std::shared_ptr<Gpu> gpu_;
  const std::chrono::milliseconds within_;
  absl::Status failed_;
};

}  // namespace outboard::cuda
