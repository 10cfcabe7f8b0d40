// Child processes that run a tenant's work, in a sandbox (worker/sandbox), and end with this
// process. A child and its parent share a socket pair.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/process/child_end.h"
#include "worker/sandbox/sandbox_plan.h"

namespace outboard::worker {

struct ChildOptions {
  std::string file = {};  // what is run, as ProgramFile has it; empty: argv[0]
  SandboxProfile profile = SandboxProfile::kCompiler;
  std::vector<int> cores = {};  // that it may use; empty: the caller's
  // As LimitSessionMemory, before it is told anything; 0: no limit yet, of a program that is none
  // but the compiler.
  uint64_t memory_bytes_max = 0;
  // "NAME=VALUE", besides those that its profile gets, and instead of those of these names.
  std::vector<std::string> environment = {};
  // One that was killed has so long to end; then it is left alone (ChildEnd::Never).
  int kill_patience_ms = 10'000;
  int kill_signal = 9;  // another in tests, of a process that does not end
  // Becomes its standard output and error; -1: this process's, to append only.
  int output = -1;
  // At most these. Fewer in tests, of the walls that stand behind others.
  SandboxParts parts = SandboxParts::All();
};

// A running child, which has one end of a socket pair as its descriptor 3. The destructor kills and
// reaps it.
class ChildProcess {
 public:
  // Runs `argv` (argv[0] is the path, or the name of `file`), in as much of a sandbox as this
  // machine grants. The child is killed by the kernel if the calling thread ends.
  // Errors: UNAVAILABLE  the program cannot be started; named
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& argv,
                                            const ChildOptions& options);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  int fd() const { return fd_; }
  int pid() const { return pid_; }
  // Started, not yet reaped, and its end of the socket is open.
  bool running() const;

  // Kills the child if it still runs, reaps it, and returns how it ended.
  ChildEnd Stop();
  // Waits at most `milliseconds` for a child that has closed its socket or is about to end, then
  // kills it; returns how it ended. The socket stays open until Stop, since another thread may be
  // about to use its descriptor.
  ChildEnd Wait(int milliseconds);

 private:
  ChildEnd KillAndReap();

  int fd_ = -1;
  int pid_ = -1;
  int kill_patience_ms_ = 0;
  int kill_signal_ = 0;
};

inline constexpr int kChildSocket = 3;

// Called first in a child's main: makes the child end with its parent, and enters its sandbox.
void BeginAsChild();

// Returns the path of a program that is installed in the same folder as this one.
std::string ProgramBeside(const std::string& name);

}  // namespace outboard::worker
