// BEAM: search over Opts by measured times.
//
// From the heuristic's Opts, round after round: every neighbour of the best few is compiled and
// timed, and the best few of all so far go on; it ends when a round improves little, or when it is
// told to stop. What measures is injected (Measurer below), and so is time: nothing here knows a
// clock. A candidate whose results differ from those of plain loops can never become one of the
// best.
//
// The search is a function of the kernel, the options and the times: trials that are handed back to
// it are not made again, so that a search which was stopped, or whose process ended, goes on where
// it was, and ends where it would have ended.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/ir/uop.h"
#include "compiler/optimize/opt.h"
#include "compiler/search/trial.h"
#include "compiler/target.h"

namespace outboard::search {

// Where candidates are compiled and run. Threads: called by that of Beam.
class Measurer {
 public:
  virtual ~Measurer() = default;
  // Candidates that are likely to be compiled next, in this order: for a device that compiles
  // several at once, ahead of time.
  virtual void Expect(std::span<const std::vector<codegen::Opt>> candidates) {}
  // May be given up at a deadline. An error drops the candidate; UNAVAILABLE and CANCELLED say
  // nothing about it, and end the search unfinished.
  virtual absl::StatusOr<CompiledKernel> Compile(const std::vector<codegen::Opt>& opts) = 0;
  virtual absl::Status Run(const CompiledKernel& kernel, std::span<void* const> buffers,
                           int64_t task_begin, int64_t task_end) = 0;
  // Of one run of the whole kernel. May return early with any larger number once it is clear that
  // `most_seconds` is exceeded.
  virtual absl::StatusOr<double> Seconds(const CompiledKernel& kernel,
                                         std::span<void* const> buffers, double most_seconds) = 0;
};

struct BeamOptions {
  int width = 4;                 // candidates that go on
  int64_t trials_max = 1 << 20;  // new ones in this call
  double least_gain = 1.01;      // of a round, or the search ends
  std::function<bool()> stop;    // asked before each new trial; empty: never
  // Told of each new trial, to keep it.
  std::function<void(const Trial&)> on_trial;
  Target target = HostTarget();  // what Measurer compiles for
};

struct BeamResult {
  std::vector<Trial> trials;  // all, in the order made: those handed in first
  Trial best;
  int64_t heuristic_ns = 0;
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
