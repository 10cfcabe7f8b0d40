// Runs the trials of a sweep until none is left: starts, reads and stops their processes, and
// writes what it knows to the sweep's folder. Blocks its thread.
//
// Money. Each trial that starts gets an equal part of what is left as its own bound
// (CLOUD_MAX_COST): what a trial leaves over is for those after it, and the bounds of all together
// are never above the sweep's. A trial without money waits; the sweep then ends, and goes on with
// `outboard sweep resume ID --max-cost MORE`.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "cli/sweep/sweep_folder.h"

namespace outboard::cli {

// Runs the sweep, which this process has claimed; trials that an earlier runner has left unfinished
// begin again. `stop`: set by a signal; running trials are then stopped and count as waiting.
// Errors: UNAVAILABLE  the disk
absl::Status RunTrials(const SweepFolder& folder, const std::atomic<bool>& stop);

}  // namespace outboard::cli
