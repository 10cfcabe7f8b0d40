// Starts a program in a sandbox: the supervisor's half (sandbox_plan.h). Threads: any; the program
// ends with the thread that has started it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/sandbox/sandbox_plan.h"

namespace outboard::worker {

struct BoxedStart {
  std::vector<std::string> argv;         // argv[0] is the path, unless `file` is given
  std::string file = {};                 // what is run; empty: argv[0]
  std::vector<std::string> environment;  // "NAME=value"; the plan is added to it
  SandboxPlan plan;                      // its `user` is filled in
  int socket = -1;                       // becomes the program's descriptor `socket_number`
  int socket_number = -1;
  std::vector<int> cores;  // that it may use; empty: the caller's
  int output = -1;         // its standard output and error; -1: the caller's, to append only
};

// Starts the program as a child of the calling thread, and returns its process id once the program
// has been loaded. Its standard input is empty; it is in a session of its own, so that a terminal's
// Ctrl-C is for the supervisor. The kernel kills it when the calling thread ends.
// Errors: UNAVAILABLE  the program cannot be started; says why
absl::StatusOr<pid_t> StartBoxed(const BoxedStart& start);

}  // namespace outboard::worker
