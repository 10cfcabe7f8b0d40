// Compiles, runs and times the candidates of a kernel search on the device of this process, which
// must be otherwise idle. Several candidates are compiled ahead in a batch; none is compiled while
// another is timed.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/search/beam.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/engine/launch_watch.h"

namespace outboard::worker {

struct MeasurerOptions {
  int batch = 1;                 // candidates that are compiled at a time
  // Is told what is waited for, and how long a candidate may take beside what it has to beat;
  // nullptr: nobody.
  LaunchWatch* watch = nullptr;
  // Before each timed run as much memory of the device is overwritten as its caches may hold, so
  // that the run finds nothing of its operands there.
  bool cold_caches = false;
  // For what results are compared with, on the device. Where it is too little, the host compares.
  int64_t expected_bytes_max = int64_t{1} << 30;
};

// Threads: one, the device's.
class KernelMeasurer final : public search::Measurer {
 public:
  // For one kernel without VARs, given as its encoding, in one copy or several
  // (compiler/copies.h). All pointers outlive this.
  KernelMeasurer(std::string encoding, KernelCompiler* compiler, runtime::Device* device,
                 const MeasurerOptions& options);

  // Before all else. Errors: RESOURCE_EXHAUSTED  the device has no room for what overwrites caches
  absl::Status Open();

  void Expect(std::span<const std::vector<codegen::Opt>> candidates) override;
  absl::StatusOr<CompiledKernel> Compile(const std::vector<codegen::Opt>& opts) override;
  // Of a kernel in several copies, all copies have the same inputs, and `buffers` the results of
  // the first. Errors: DATA_LOSS  those of another one differ
  absl::Status Run(const CompiledKernel& kernel, std::span<void* const> buffers, int64_t task_begin,
                   int64_t task_end) override;
  // If the device can run single tasks (DeviceProperties::cuts_tasks), times one or two first: a
  // candidate that these show to be slow is not run completely.
  absl::StatusOr<double> Seconds(const CompiledKernel& kernel, std::span<void* const> buffers,
                                 double most_seconds) override;
  // Results are kept beside those of the candidates: an update's on both sides of it.
  // Errors: UNIMPLEMENTED  a processor: its memory is the host's; otherwise the device's and the
  // compiler's
  absl::Status KeepExpected(std::span<const search::ExpectedSlot> slots) override;
  absl::Status Compare(const CompiledKernel& kernel) override;
  search::Conditions conditions() const override { return conditions_; }
  absl::Status health() const override { return device_->health(); }
  // OK, or why the device did not tell its clocks.
  const absl::Status& conditions_status() const { return conditions_status_; }

 private:
  // A slot of the kernel; `memory` has the host's buffer for each copy if the device cannot address
  // that.
  struct Slot {
    int64_t bytes = 0;
    bool written = false;
    std::vector<runtime::DeviceBuffer> memory;
  };
  // What the results of a slot that the kernel writes are compared with, and by what.
  struct Expected {
    size_t slot = 0;
    int64_t elements = 0;
    unsigned char unwritten = 0;  // what is in each byte of results before a run
    std::optional<runtime::DeviceBuffer> before;  // if the kernel reads the slot, too
    runtime::DeviceBuffer after;
    std::unique_ptr<runtime::DeviceKernel> differences;  // search::DifferencesKernel
  };
  absl::StatusOr<std::vector<Expected>> CopyExpected(std::span<const search::ExpectedSlot> slots);
  // Gives the slots that the kernel writes what they held before it ran for the first time.
  absl::Status Restore();
  // Of all copies, without a copy of anything: every slot must have been on the device.
  std::vector<runtime::DeviceAddress> Addresses() const;
  // Returns device addresses of the contents of `buffers`, for each copy; uploads what the device
  // cannot address and does not have yet, since what no kernel writes stays as it is. What kernels
  // write is restored where its contents are kept, and uploaded again elsewhere.
  absl::StatusOr<std::vector<runtime::DeviceAddress>> OnDevice(std::span<void* const> buffers);
  // The kernel on the device: the last one is kept, since it is timed and compared.
  absl::StatusOr<const runtime::DeviceKernel*> Loaded(const CompiledKernel& kernel);
  absl::StatusOr<double> Time(const runtime::DeviceKernel& kernel,
                              std::span<const runtime::DeviceAddress> addresses, int64_t tasks,
                              double most_seconds);
  // What the device runs at, just after the work whose time was taken.
  void ReadConditions();
  // Overwrites what the caches hold, where the options ask for it.
  absl::Status ColdCaches();
  // Copies results of kernels back to `buffers`, unless kernels wrote there directly.
  absl::Status ToHost(std::span<void* const> buffers);

  const std::string encoding_;
  KernelCompiler* const compiler_;
  runtime::Device* const device_;
  const MeasurerOptions options_;
  int64_t copies_ = 1;
  std::string candidate_;                           // whose launch is waited for, for people
  std::unique_ptr<runtime::DeviceKernel> loaded_;   // of loaded_from_
  CompiledKernel loaded_from_;
  std::optional<runtime::DeviceBuffer> scratch_;    // for ColdCaches
  search::Conditions conditions_;
  absl::Status conditions_status_;  // an error is for good
  std::vector<Expected> expected_results_;       // empty: the host compares
  std::optional<runtime::DeviceBuffer> counts_;  // of the kernel that compares
  std::vector<Slot> slots_;           // empty: the kernel has no buffers
  std::deque<std::string> expected_;  // not compiled yet
  absl::flat_hash_map<std::string, absl::StatusOr<CompiledKernel>>
      ready_;  // looked up, never iterated
};

}  // namespace outboard::worker
