// Finds out at a worker's start whether the driver of its devices works behind the walls of an
// executor (docs/sandbox.md), which nobody can know of a driver beforehand.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "worker/executor/executor_main.h"

namespace outboard::worker {

// Starts `executor` as for a session, to open its first device and to list all of them. Where that
// fails, or lists fewer than `device_count` (0: of a kind that is not listed), it is started again
// without the walls that a driver may mind; if it does better there, once more with them, since a
// driver that was cold or an executor that was killed says nothing of walls. Only if that fails,
// too, and one of the two for a reason (neither killed nor without an answer), executors have none
// of these from now on, and WhatIsMissing says why (sandbox/granted_parts.h). Does nothing for
// devices without a driver, and ends soon, with nothing found, once `stopping` is set. On the
// thread that starts executors.
void TryDriverBehindWalls(const std::vector<std::string>& executor,
                          const ExecutorMainOptions& options, size_t device_count,
                          const std::atomic<bool>& stopping);

// How long that may take, of a driver that hangs.
std::chrono::seconds DriverTrialTakesAtMost(const ExecutorMainOptions& options);

}  // namespace outboard::worker
