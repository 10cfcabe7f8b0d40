// What a program's graphs do on a GPU that need not be here: they are scheduled for it, as a worker
// with such a device would, and each kernel is counted as it would run: what it reads and stores,
// its arithmetic, and whether a matrix unit computes its products. Nothing is compiled.
//
// Threads: pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/session/estimate/run_log.h"
#include "compiler/target.h"

namespace outboard::cli {

// Of one Run of the graph. Errors: those of DecodeGraph, MakeSchedule and StartingOpts;
// INVALID_ARGUMENT, a VAR without a value
absl::StatusOr<std::vector<session::KernelWork>> ScheduledKernels(const session::SentGraph& graph,
                                                                  const Target& target);

// `work`, a program's, with the kernels that its graphs have on such a device in place of those
// that were counted. A graph that cannot be scheduled makes it `unknown`.
session::RecordedWork ScheduledFor(const Target& target, session::RecordedWork work,
                                   const std::vector<session::SentGraph>& graphs);

}  // namespace outboard::cli
