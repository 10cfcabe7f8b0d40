#include "worker/init/worker_keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exec_arguments.h"
#include "worker/init/node_init.h"

namespace outboard::worker {
namespace {

constexpr double kNever = 3600;  // s: nothing is to be done by itself

}  // namespace

WorkerKeeper::WorkerKeeper(WorkerKeeperOptions options, NodeLog* log,
                           std::function<uint32_t()> random)
    : options_(std::move(options)),
      log_(log),
      pause_(options_.pause_first_s, options_.pause_most_s, std::move(random)) {}

WorkerKeeper::~WorkerKeeper() {
  if (fd_ >= 0) close(fd_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

double WorkerKeeper::Keep(double now) {
  if (stopped_ || pid_ > 0) return now + kNever;
  if (now >= next_at_) Start(now);
  return pid_ > 0 ? now + kNever : next_at_;
}

void WorkerKeeper::Start(double now) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) {
    log_->Say(absl::StrCat("no pipe for the worker: ", strerror(errno)));
    next_at_ = now + pause_.Next();
    return;
  }
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output[1], 1);
  posix_spawn_file_actions_adddup2(&actions, output[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> argv = options_.command, environment = options_.environment;
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0].c_str(), &actions, &attributes,
                                ExecPointers(argv).data(), ExecPointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(output[1]);
  if (error != 0) {
    close(output[0]);
    log_->Say(absl::StrCat("cannot start ", argv[0], ": ", strerror(error)));
    next_at_ = now + pause_.Next();
    return;
  }
  if (fd_ >= 0) close(fd_);
  fd_ = output[0];
  pid_ = pid;
  started_at_ = now;
}

void WorkerKeeper::OnReadable() {
  char bytes[4096];
  for (;;) {
    const ssize_t count = read(fd_, bytes, sizeof bytes);
    if (count > 0) {
      log_->Add({bytes, static_cast<size_t>(count)});
      continue;
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    close(std::exchange(fd_, -1));
    return;
  }
}

void WorkerKeeper::OnEnded(pid_t pid, int status, double now) {
  if (pid != pid_) return;
  if (fd_ >= 0) OnReadable();  // its last words
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitRestartMachine)
    stopped_ = wants_restart_ = true;
  const bool wants_again = WIFEXITED(status) && WEXITSTATUS(status) == kExitRestartWorker;
  if (wants_again || now - started_at_ >= options_.works_after_s) pause_.Reset();
  const double pause = wants_again ? 0 : pause_.Next();
  next_at_ = now + pause;
  const std::string how = WIFSIGNALED(status)
                              ? absl::StrCat("was ended by signal ", WTERMSIG(status))
                              : absl::StrCat("exited with ", WEXITSTATUS(status));
  log_->Say(stopped_ ? absl::StrCat("the worker ", how)
                     : absl::StrFormat("the worker %s; again in %.1f s", how, pause));
}

void WorkerKeeper::Stop() {
  stopped_ = true;
  if (pid_ > 0) kill(pid_, SIGTERM);
}

}  // namespace outboard::worker
