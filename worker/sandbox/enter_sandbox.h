// Enters a sandbox: the process's half (sandbox_plan.h). After it there is no way back, and none to
// more than the profile's list of system calls.
#pragma once

namespace outboard::worker {

// Called first in main, with no thread besides. Does nothing without a plan in the environment, as
// when the program is started by hand. `socket`: the highest descriptor that is kept.
// A part of the plan that cannot be had ends the process with kExitNoSandbox and a line on stderr.
void EnterSandbox(int socket);

inline constexpr int kExitNoSandbox = 71;
// Of the first process of a PID namespace, which the kernel does not let end by its own signal 6.
inline constexpr int kExitAborted = 134;

}  // namespace outboard::worker
