// Starts a user's program for a command that watches it.
//
// Threads: any; the program ends with the thread that has started it.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::cli {

struct ProgramStart {
  std::string name;                  // in messages: "a trial"
  std::vector<std::string> command;  // [0] is looked for in PATH
  // "NAME=value": added to this process's environment, in place of what has that name there.
  std::vector<std::string> variables;
  // Of this process, and the number that each has in the program. Its standard input is empty.
  std::vector<std::pair<int, int>> descriptors;
};

// Returns its process id once it has been loaded. It leads a process group, blocks no signal and
// handles SIGINT, SIGTERM and SIGPIPE as the system does; SIGTERM ends it with the calling thread.
// Errors: FAILED_PRECONDITION  there is no such program, or it cannot be run; says why
//         UNAVAILABLE          no process or pipe to be had
absl::StatusOr<pid_t> StartProgram(const ProgramStart& start);

// UNAVAILABLE: `what`, and why by errno.
absl::Status SystemError(const std::string& what);

}  // namespace outboard::cli
