// What somebody who runs code of their own in a sandboxed process would try.
#pragma once

#include <string>
#include <vector>

namespace outboard::test {

// Of the machine outside, which an attempt is to reach.
struct OutsideTargets {
  int pid = 0;          // of the supervisor
  int port = 0;         // that it listens at, on loopback
  std::string file;     // that it can read and write
  std::string address;  // of an abstract unix socket that it listens at
};

struct SandboxAttempt {
  const char* name;
  // Returns 0 if it succeeded, else the error by which it was stopped.
  int (*run)(const OutsideTargets&);
  // Also stopped without a filter of system calls: by what, for people. nullptr: by the filter
  // alone.
  const char* other_wall;
  // Whose work it is, so that it must succeed there.
  enum class Work { kNobodys, kWhoeverRunsKernels } work = Work::kNobodys;
};

const std::vector<SandboxAttempt>& SandboxAttempts();

}  // namespace outboard::test
