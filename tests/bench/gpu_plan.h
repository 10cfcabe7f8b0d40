// The kernels of a graph on a GPU, timed by the device's clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"
#include "runtime/device.h"

namespace outboard::bench {

// Inputs hold random numbers: floats from 0.125 to 1 with all their digits drawn, so that the
// device takes the power that it takes for somebody's data (zeros flatter), and integers that are
// 0. Threads: one.
class GpuPlan {
 public:
  // Errors: those of the compiler and the device
  static absl::StatusOr<std::unique_ptr<GpuPlan>> Make(
      runtime::Device& device, const Target& target,
      const std::function<const UOp*(Graph&)>& graph);

  // Queues all kernels `times` times over.
  absl::Status Queue(int times = 1);

  // The least time of one run by the device's clock.
  absl::StatusOr<double> Seconds(int repeats);

 private:
  explicit GpuPlan(runtime::Device& device) : device_(device) {}
  absl::StatusOr<runtime::DeviceAddress> Memory(int64_t bytes);

  runtime::Device& device_;
  std::vector<runtime::DeviceBuffer> memory_;
  std::vector<std::unique_ptr<runtime::DeviceKernel>> kernels_;
  std::vector<std::vector<runtime::DeviceAddress>> slots_;
  std::unique_ptr<runtime::LaunchRecord> record_;
};

// What a copy within the device reads and writes in a second; the best of `repeats`, each of eight
// copies. Errors: those of the device
absl::StatusOr<double> CopiedBytesPerSecond(runtime::Device& device, int64_t bytes, int repeats);

}  // namespace outboard::bench
