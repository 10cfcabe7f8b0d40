// BEAM: search over Opts by measured times.
//
// Starts from the Opts that the compiler would choose. Each round compiles and times every
// neighbour of the best few candidates, and selects the best few of all so far; the search ends
// when a round improves little, or when `stop` returns true. The device and the clock are injected
// (measurer.h). A candidate whose results differ from those of plain loops can never become one
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
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/search/measurer.h"
#include "compiler/search/trial.h"
#include "compiler/target.h"

namespace outboard::search {

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
