// Reads what a GPU runs at from NVIDIA's management library (NVML), whose few functions are
// declared here and loaded when they are first needed, as the driver's are (api.h). The library
// comes with the driver, but a machine or a container may well have one without the other.
#pragma once

#include <memory>
#include <string>
#include <utility>

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

}  // namespace outboard::cuda
