// The filter of system calls of a process that loads a device's driver. What a driver calls is not
// known, so that all calls are allowed but those that no driver needs: the kind of list that
// container runtimes have by default, under which CUDA is known to run.
#pragma once

#include "absl/status/status.h"

namespace outboard::worker {

// From now on the calling process, with all threads that it will have, makes no new process, runs
// no program, has no socket but unix ones, and does without the kernel's wide doors. A refused call
// fails with EPERM; one that Linux got after this list was written fails with ENOSYS.
// Errors: UNAVAILABLE  the kernel refuses the filter; says why
absl::Status RefuseCallsOfNoDriver();

}  // namespace outboard::worker
