// Where a search's candidates are compiled, run and timed: on the device of this process, which
// nobody else uses meanwhile. Candidates are compiled some ahead, together, and none is compiled
// while another is timed.
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
  // For one kernel without VARs, by its encoding. Both pointers outlive this.
  KernelMeasurer(std::string encoding, KernelCompiler* compiler, runtime::Device* device);

  void Expect(std::span<const std::vector<codegen::Opt>> candidates) override;
  absl::StatusOr<CompiledKernel> Compile(const std::vector<codegen::Opt>& opts) override;
  absl::Status Run(const CompiledKernel& kernel, std::span<void* const> buffers, int64_t task_begin,
                   int64_t task_end) override;
  // Tries a task or two first, where the device cuts tasks: what is clearly slow by them does not
  // run whole.
  absl::StatusOr<double> Seconds(const CompiledKernel& kernel, std::span<void* const> buffers,
                                 double most_seconds) override;

 private:
  // A slot of the kernel; `memory` stands for the host's where the device cannot address that.
  struct Slot {
    int64_t bytes = 0;
    bool written = false;
    std::optional<runtime::DeviceBuffer> memory;
  };
  // Where the device finds what `buffers` hold now.
  absl::StatusOr<std::vector<runtime::DeviceAddress>> OnDevice(std::span<void* const> buffers);
  // Copies what kernels wrote back to `buffers`, where it is not there already.
  absl::Status ToHost(std::span<void* const> buffers);

  const std::string encoding_;
  KernelCompiler* const compiler_;
  runtime::Device* const device_;
  std::vector<Slot> slots_;           // where there are none, the kernel has no buffers
  std::deque<std::string> expected_;  // not compiled yet
  absl::flat_hash_map<std::string, absl::StatusOr<CompiledKernel>>
      ready_;  // looked up, never walked
};

}  // namespace outboard::worker
