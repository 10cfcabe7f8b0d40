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

// Whether `graphs` are all that `work` was counted of: a program whose client library is older than
// the lines of graphs writes none.
bool HasAllGraphs(const session::RecordedWork& work, const std::vector<session::SentGraph>& graphs);

// `work`, a program's, with the kernels that its graphs have on such a device in place of those
// that were counted; those that were counted where it does not have all graphs. A graph that cannot
// be scheduled makes it `unknown`.
session::RecordedWork ScheduledFor(const Target& target, session::RecordedWork work,
                                   const std::vector<session::SentGraph>& graphs);

}  // namespace outboard::cli
