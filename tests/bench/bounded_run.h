// Runs a program of somebody else's for a bounded time, and leaves none of its processes behind.
#pragma once

#include <string>

namespace outboard::bench {

struct BoundedRun {
  std::string said;        // what it has printed, also where its time was over
  int status = 0;          // its exit status, or 128 and the number of the signal that ended it
  bool timed_out = false;  // then its group of processes was ended
};

// `command` is one command of the shell, which may begin with variables and end with redirections.
// If this process ends, the command does, too.
BoundedRun RunBounded(const std::string& command, int seconds);

}  // namespace outboard::bench
