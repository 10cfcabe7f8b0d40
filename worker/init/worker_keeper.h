// The program that a node is there for: started, and started again with growing pauses whenever it
// ends, for ever; at once where it ends with kExitRestartWorker (node_init.h). Its output goes to
// the node's log.
//
//   waiting --the pause is over--> running --it ends--> waiting
//   any --Stop--> stopped
//
// Threads: one. Times are seconds of a clock that only goes forward.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/growing_pause.h"
#include "worker/init/node_log.h"

namespace outboard::worker {

struct WorkerKeeperOptions {
  std::vector<std::string> command;      // argv[0] is the path
  std::vector<std::string> environment;  // all of it
  double pause_first_s = 1, pause_most_s = 60;
  // One that ran for so long did work: the next pause is the first again.
  double works_after_s = 60;
};

class WorkerKeeper {
 public:
  WorkerKeeper(WorkerKeeperOptions options, NodeLog* log, std::function<uint32_t()> random);
  ~WorkerKeeper();  // kills it

  // Starts it where it is time; returns when to call again, at the latest.
  double Keep(double now);
  // Output has come, or it has closed it: `fd` is readable.
  void OnReadable();
  // A child of this process ended: `status` as of waitpid. Others' are not looked at.
  void OnEnded(pid_t pid, int status, double now);
  // No other is started; SIGTERM to the one that runs.
  void Stop();

  int fd() const { return fd_; }  // its output; -1: none
  pid_t pid() const { return pid_; }
  // It ended with kExitRestartMachine (node_init.h), and no other is started.
  bool wants_restart() const { return wants_restart_; }

 private:
  void Start(double now);

  const WorkerKeeperOptions options_;
  NodeLog* const log_;
  GrowingPause pause_;
  pid_t pid_ = -1;
  int fd_ = -1;
  double started_at_ = 0, next_at_ = 0;
  bool stopped_ = false, wants_restart_ = false;
};

}  // namespace outboard::worker
