// BEAM: the best Opts for a kernel, by measuring.
//
// Starts from the heuristic's choice and walks from each of the best `width` lists that were measured
// to their neighbours (neighbours.h), until a round finds nothing better. The compiler has no clock:
// whoever calls compiles, checks the result, runs and times.
//
// Deterministic given the times, so a search that was stopped is continued by asking again with a
// `measure` that knows what it was told before; nothing else is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/plan.h"
#include "compiler/ir/uop.h"
#include "compiler/search/neighbours.h"

namespace outboard::search {

// The time of one run in ns, for each of the lists, in their order; 0 for one that may not be used
// (does not compile, gives another result, takes far too long). An error ends the search.
using Measure = std::function<absl::StatusOr<std::vector<int64_t>>(std::span<const Opts>)>;

struct BeamOptions {
  int width = 4;         // lists that are kept from round to round
  int trials_max = 240;  // measured in all, however much could still be tried
};

struct BeamResult {
  Opts opts;                // the fastest; of equal ones the first
  int64_t time_ns = 0;      // its time
  int64_t baseline_ns = 0;  // of the heuristic's choice
  int trials = 0;           // lists measured
};

// Errors: those of `measure`, and of AnalyzeKernel
//         FAILED_PRECONDITION  the heuristic's own choice may not be used
// Threads: pure, but for `measure`, which is called from this thread.
absl::StatusOr<BeamResult> Beam(const UOp* kernel, const codegen::Machine& machine,
                                const BeamOptions& options, const Measure& measure);

}  // namespace outboard::search
