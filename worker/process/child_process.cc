#include "worker/process/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::worker {
namespace {

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("ended by signal ", WTERMSIG(status));
  return absl::StrCat("exited with ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& argv) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return absl::UnavailableError(absl::StrCat("no socket pair: ", strerror(errno)));
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  // spawn, not fork: this process may have threads. dup2 onto itself would keep CLOEXEC, hence the
  // detour over a descriptor above all standard ones.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int high = fcntl(pair[1], F_DUPFD_CLOEXEC, 64);
  posix_spawn_file_actions_adddup2(&actions, high, kChildSocket);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A terminal's Ctrl-C is for the parent, which stops its children in order.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, argv[0].c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(high);
  close(pair[1]);
  if (error != 0) {
    close(pair[0]);
    return absl::UnavailableError(absl::StrCat("cannot start ", argv[0], ": ", strerror(error)));
  }
  ChildProcess child;
  child.fd_ = pair[0];
  child.pid_ = pid;
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(pid_, other.pid_);
  return *this;
}

ChildProcess::~ChildProcess() { Stop(); }

bool ChildProcess::running() const {
  if (pid_ <= 0) return false;
  pollfd poll_fd{fd_, POLLIN, 0};
  return poll(&poll_fd, 1, 0) <= 0 || (poll_fd.revents & POLLHUP) == 0;
}

std::string ChildProcess::Stop() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  return KillAndReap();
}

std::string ChildProcess::KillAndReap() {
  if (pid_ <= 0) return "was not running";
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return HowItEnded(status);
}

std::string ChildProcess::Wait(int milliseconds) {
  if (pid_ > 0) {
    const int pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    if (pid_fd >= 0) {
      pollfd poll_fd{pid_fd, POLLIN, 0};
      const int ready = poll(&poll_fd, 1, milliseconds);
      close(pid_fd);
      int status = 0;
      if (ready > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return HowItEnded(status);
      }
    }
  }
  return KillAndReap();
}

void EndWithParent() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have gone before the line above; its end of the socket is then closed.
  pollfd poll_fd{kChildSocket, POLLIN, 0};
  if (poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLHUP)) _exit(0);
}

std::string ProgramBeside(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / name).string();
}

}  // namespace outboard::worker
