// What the search needs of a device: to compile, run, time and compare the candidates of one
// kernel. The worker has one over its device (worker/tuning/kernel_measurer.h), tests have made-up
// ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/dtype.h"
#include "compiler/optimize/opt.h"
#include "compiler/search/trial.h"

namespace outboard::search {

// A slot that the kernel writes: what it holds before a run, and after one of a right kernel.
struct ExpectedSlot {
  size_t slot = 0;
  DType dtype = DType::kVoid;
  int64_t elements = 0;
  const void* before = nullptr;  // `elements` of them; nullptr: the kernel does not read it
  const void* after = nullptr;   // `elements` of them
};

// Compiles, runs and times candidates. Threads: called by the thread of Beam.
class Measurer {
 public:
  virtual ~Measurer() = default;
  // Announces candidates that are likely to be compiled next, in this order: for a device that
  // compiles several at once, ahead of time.
  virtual void Expect(std::span<const std::vector<codegen::Opt>> candidates) {}
  // May fail at a deadline. An error drops the candidate; UNAVAILABLE and CANCELLED do not reflect
  // on the candidate, and end the search unfinished.
  virtual absl::StatusOr<CompiledKernel> Compile(const std::vector<codegen::Opt>& opts) = 0;
  virtual absl::Status Run(const CompiledKernel& kernel, std::span<void* const> buffers,
                           int64_t task_begin, int64_t task_end) = 0;
  // Returns the time of one run of the whole kernel. May return early with any number above
  // `most_seconds` once that is exceeded.
  virtual absl::StatusOr<double> Seconds(const CompiledKernel& kernel,
                                         std::span<void* const> buffers, double most_seconds) = 0;
  // For a device with memory of its own: takes what a right kernel makes of which results there,
  // so that Compare needs no copies between it and the host.
  // Errors: UNIMPLEMENTED  the host is to compare; the device's, as where it lacks the memory: then
  // the host is to compare, too
  virtual absl::Status KeepExpected(std::span<const ExpectedSlot> slots) {
    return absl::UnimplementedError("the host compares");
  }
  // After KeepExpected: runs all of the kernel and compares its results (compare.h).
  // Errors: DATA_LOSS  so many elements differ by more than rounding explains; those of Run
  virtual absl::Status Compare(const CompiledKernel& kernel) {
    return absl::UnimplementedError("the host compares");
  }
  // What the device ran at when the last time of Seconds was taken.
  virtual Conditions conditions() const { return {}; }
  // OK, or why nothing can be run any more in this process: that ends the search unfinished.
  virtual absl::Status health() const { return absl::OkStatus(); }
};

}  // namespace outboard::search
