#include "worker/process/child_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/sandbox/boxed_environment.h"
#include "worker/sandbox/boxed_start.h"
#include "worker/sandbox/enter_sandbox.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/sandbox/session_share.h"

namespace outboard::worker {
namespace {

// True if the child has ended, or does so in time; nullopt without a descriptor to find out by.
std::optional<bool> EndsWithin(pid_t pid, int milliseconds) {
  const int pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pid_fd < 0) return std::nullopt;
  pollfd poll_fd{pid_fd, POLLIN, 0};
  const int ready = poll(&poll_fd, 1, milliseconds);
  close(pid_fd);
  return ready > 0;
}

int Reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::vector<std::string> EnvironmentOf(const ChildOptions& options) {
  std::vector<std::string> environment = BoxedEnvironment(options.profile);
  for (const std::string& more : options.environment) {
    const std::string name = more.substr(0, more.find('=') + 1);
    std::erase_if(environment, [&](const std::string& known) { return known.starts_with(name); });
    environment.push_back(more);
  }
  return environment;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& argv,
                                                 const ChildOptions& options) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return absl::UnavailableError(absl::StrCat("no socket pair: ", strerror(errno)));
  const absl::StatusOr<pid_t> pid = StartBoxed(
      {.argv = argv,
       .file = options.file,
       .environment = EnvironmentOf(options),
       .plan = {.profile = options.profile,
                .parts = PartsFor(options.profile) & options.parts,
                .has_driver = options.profile == SandboxProfile::kExecutor && NeedsDriver()},
       .socket = pair[1],
       .socket_number = kChildSocket,
       .cores = options.cores,
       .output = options.output});
  close(pair[1]);
  if (!pid.ok()) {
    close(pair[0]);
    return pid.status();
  }
  ChildProcess child;
  child.fd_ = pair[0];
  child.pid_ = *pid;
  child.kill_patience_ms_ = options.kill_patience_ms;
  child.kill_signal_ = options.kill_signal;
  if (options.memory_bytes_max > 0)
    if (absl::Status status = LimitSessionMemory(*pid, options.memory_bytes_max); !status.ok())
      return status;
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(pid_, other.pid_);
  std::swap(kill_patience_ms_, other.kill_patience_ms_);
  std::swap(kill_signal_, other.kill_signal_);
  return *this;
}

ChildProcess::~ChildProcess() { Stop(); }

bool ChildProcess::running() const {
  if (pid_ <= 0) return false;
  pollfd poll_fd{fd_, POLLIN, 0};
  return poll(&poll_fd, 1, 0) <= 0 || (poll_fd.revents & POLLHUP) == 0;
}

ChildEnd ChildProcess::Stop() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  return KillAndReap();
}

ChildEnd ChildProcess::KillAndReap() {
  if (pid_ <= 0) return {};
  kill(pid_, kill_signal_);
  const pid_t pid = std::exchange(pid_, -1);
  if (!EndsWithin(pid, kill_patience_ms_).value_or(true)) {
    std::thread([pid] { Reap(pid); }).detach();
    return ChildEnd::Never();
  }
  return ChildEnd::OfStatus(Reap(pid));
}

ChildEnd ChildProcess::Wait(int milliseconds) {
  if (pid_ > 0 && EndsWithin(pid_, milliseconds).value_or(false))
    return ChildEnd::OfStatus(Reap(std::exchange(pid_, -1)));
  return KillAndReap();
}

void BeginAsChild() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  EnterSandbox(kChildSocket);
  // The parent may have gone before either line above; its end of the socket is then closed.
  pollfd poll_fd{kChildSocket, POLLIN, 0};
  if (poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLHUP)) _exit(0);
}

std::string ProgramBeside(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / name).string();
}

}  // namespace outboard::worker
