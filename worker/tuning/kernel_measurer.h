// Compiles, runs and times the candidates of a kernel search on the device of this process, which
// must be otherwise idle. Several candidates are compiled ahead in a batch; none is compiled while
// another is timed.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/search/beam.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"

namespace outboard::worker {

// Threads: one, the device's.
class KernelMeasurer final : public search::Measurer {
 public:
  // For one kernel without VARs, given as its encoding. Both pointers outlive this.
  KernelMeasurer(std::string encoding, KernelCompiler* compiler, runtime::Device* device);

  void Expect(std::span<const std::vector<codegen::Opt>> candidates) override;
  absl::StatusOr<CompiledKernel> Compile(const std::vector<codegen::Opt>& opts) override;
  absl::Status Run(const CompiledKernel& kernel, std::span<void* const> buffers, int64_t task_begin,
                   int64_t task_end) override;
  // If the device can run single tasks (DeviceProperties::cuts_tasks), times one or two first: a
  // candidate that these show to be slow is not run completely.
  absl::StatusOr<double> Seconds(const CompiledKernel& kernel, std::span<void* const> buffers,
                                 double most_seconds) override;

 private:
  // A slot of the kernel; `memory` mirrors the host's buffer if the device cannot address that.
  struct Slot {
    int64_t bytes = 0;
    bool written = false;
    std::optional<runtime::DeviceBuffer> memory;
  };
  // Returns device addresses of the contents of `buffers`; uploads them if needed.
  absl::StatusOr<std::vector<runtime::DeviceAddress>> OnDevice(std::span<void* const> buffers);
  // Copies results of kernels back to `buffers`, unless kernels wrote there directly.
  absl::Status ToHost(std::span<void* const> buffers);

  const std::string encoding_;
  KernelCompiler* const compiler_;
  runtime::Device* const device_;
  std::vector<Slot> slots_;           // empty: the kernel has no buffers
  std::deque<std::string> expected_;  // not compiled yet
  absl::flat_hash_map<std::string, absl::StatusOr<CompiledKernel>>
      ready_;  // looked up, never iterated
};

}  // namespace outboard::worker
