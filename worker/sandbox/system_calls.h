// The system calls that a sandboxed process may make.
#pragma once

#include "absl/status/status.h"
#include "worker/sandbox/sandbox_plan.h"

namespace outboard::worker {

// From now on, for this process and without a way back: a call that is not on the profile's list
// fails with EPERM.
// Errors: UNAVAILABLE  the kernel refuses the filter
absl::Status AllowOnlyListedCalls(SandboxProfile profile);

}  // namespace outboard::worker
