// The environment of sandboxed processes: the variables that their programs read, and no other, so
// that no secret of the supervisor's or of its operator's is among them. Threads: any, as getenv.
#pragma once

#include <string>
#include <vector>

#include "worker/sandbox/sandbox_plan.h"

namespace outboard::worker {

// Returns "NAME=value" for each variable of this process that a program of this profile reads.
std::vector<std::string> BoxedEnvironment(SandboxProfile profile);

}  // namespace outboard::worker
