// Children that this process starts and that end with it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::worker {

// A running child with one end of a socket pair, which is its descriptor 3. Killed and reaped when
// this goes.
class ChildProcess {
 public:
  // Runs `argv` (argv[0] is the path). The child is killed by the kernel if the calling thread's
  // process ends.
  // Errors: UNAVAILABLE  the program cannot be started; named
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& argv);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  int fd() const { return fd_; }
  int pid() const { return pid_; }
  // Started, not yet reaped, and its end of the socket is open.
  bool running() const;

  // Kills it if it still runs, reaps it, and says how it ended: "ended by signal 9", "exited with
  // 1".
  std::string Stop();
  // Waits for a child that has closed its socket or is about to end, at most `milliseconds`, then
  // kills it; says how it ended. The socket stays open until Stop: another thread may be about to
  // use its number.
  std::string Wait(int milliseconds);

 private:
  std::string KillAndReap();

  int fd_ = -1;
  int pid_ = -1;
};

inline constexpr int kChildSocket = 3;

// In a child's main, first thing: ends with the parent.
void EndWithParent();

// The path of a program that is installed beside this one.
std::string ProgramBeside(const std::string& name);

}  // namespace outboard::worker
