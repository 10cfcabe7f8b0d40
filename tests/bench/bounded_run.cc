#include "tests/bench/bounded_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace outboard::bench {
namespace {

constexpr int kTimedOut = 124, kKilled = 137;  // of timeout(1)
constexpr int kPollMs = 100;

// False at the end of the pipe, or where it holds nothing within `ms`.
bool ReadSome(int from, int ms, std::string& said) {
  pollfd ready{.fd = from, .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, ms) <= 0) return false;
  char piece[4096];
  const ssize_t size = read(from, piece, sizeof piece);
  if (size > 0) said.append(piece, static_cast<size_t>(size));
  return size > 0;
}

}  // namespace

BoundedRun RunBounded(const std::string& command, int seconds) {
  BoundedRun run{.said = "", .status = 127};
  // It makes a group of processes and ends all of it, also when it is itself asked to end.
  const std::string bounded = absl::StrCat("exec timeout -k 5 ", seconds, " env ", command);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return run;
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    dup2(ends[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", bounded.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  // Not until the end of the pipe: a process that has left the group may hold it.
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, WNOHANG) == 0)
    if (!ReadSome(ends[0], kPollMs, run.said)) usleep(kPollMs * 100);
  while (ReadSome(ends[0], 0, run.said)) continue;
  close(ends[0]);
  if (pid < 0) return run;
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.timed_out = run.status == kTimedOut || run.status == kKilled;
  return run;
}

}  // namespace outboard::bench
