// BEAM: search over Opts by measured times.
//
// Starts from the Opts that the compiler would choose. Each round compiles and times every
// neighbour of the best few candidates, and selects the best few of all so far; the search ends
// when a round improves little, or when `stop` returns true. The device and the clock are injected
// (Measurer below). A candidate whose results differ from those of plain loops can never become one
// of the best, and on a GPU it counts as one that does not work; where plain threads of a GPU would
// take too long, from those of the compiler's own choice. Where the device tells its clocks, a time
// taken at much slower ones than the search has seen is taken once more.
//
// The search is a function of the kernel, the options and the measured times: trials passed in as
// `known` are not repeated, so a search that was stopped, or whose process ended, resumes and ends
// with the result it would have had.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/uop.h"
#include "compiler/optimize/opt.h"
#include "compiler/search/trial.h"
#include "compiler/target.h"

namespace outboard::search {

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
  // What the device ran at when the last time of Seconds was taken.
  virtual Conditions conditions() const { return {}; }
  // OK, or why nothing can be run any more in this process: that ends the search unfinished.
  virtual absl::Status health() const { return absl::OkStatus(); }
};

struct BeamOptions {
  int width = 4;                 // candidates that survive a round
  int64_t trials_max = 1 << 20;  // new ones in this call
  double least_gain = 1.01;      // of a round, or the search ends
  std::function<bool()> stop;    // called before each new trial; empty: never stop
  // Called with each new trial, to store it.
  std::function<void(const Trial&)> on_trial;
  Target target = HostTarget();  // what Measurer compiles for
  // A candidate may end this process: each is given to `on_trial` as one that does not work before
  // it runs for the first time, and is not tried again where that is all that is known of it.
  bool may_end_process = false;
};

struct BeamResult {
  std::vector<Trial> trials;  // all, in the order made, `known` ones first
  Trial best;
  int64_t start_ns = 0;  // of the Opts that it began with
  bool finished = false;  // false: trials_max or `stop` ended it
};

// `sink` is verified (spec.h). `known`: trials of earlier calls for this kernel, target and version
// of the compiler.
// Errors: INVALID_ARGUMENT  a kernel without work
//         those of the device for plain loops and for the heuristic's Opts; DATA_LOSS where these
//         two differ
absl::StatusOr<BeamResult> Beam(const UOp* sink, Measurer& device, const BeamOptions& options,
                                std::vector<Trial> known = {});

}  // namespace outboard::search
