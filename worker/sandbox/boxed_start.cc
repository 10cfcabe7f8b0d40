#include "worker/sandbox/boxed_start.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cores.h"
#include "base/exec_arguments.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/sandbox/namespaces.h"
#include "worker/sandbox/sandbox_limits.h"

namespace outboard::worker {
namespace {

constexpr int kFirstHighFd = 64;  // above all numbers that the program's descriptors are moved to

// True if the id exists in this process's user namespace (user_namespaces(7)).
bool IsMapped(const char* map, uint32_t id) {
  std::ifstream lines(map);
  for (uint64_t inside, outside, count; lines >> inside >> outside >> count;)
    if (id >= inside && id - inside < count) return true;
  return false;
}

// Without a user namespace of their own, root's children take an id when they enter; -1: none that
// they could take.
int64_t UserWithoutNamespace() {
  if (geteuid() != 0) return -1;
  static std::atomic<uint32_t> started{0};
  constexpr uint32_t kPids = 1u << 22;
  const uint32_t fresh = limits::kFirstUser + kPids +
                         (static_cast<uint32_t>(getpid()) * 64 + started.fetch_add(1)) % kPids;
  for (const uint32_t id : {fresh, limits::kNobody})
    if (IsMapped("/proc/self/uid_map", id) && IsMapped("/proc/self/gid_map", id)) return id;
  return -1;
}

// A descriptor that closes with this, with a high number: dup2 onto its own number would keep
// CLOEXEC.
class HighFd {
 public:
  explicit HighFd(int fd) : fd_(fcntl(fd, F_DUPFD_CLOEXEC, kFirstHighFd)) {}
  // Opens the file.
  HighFd(const std::string& path, int flags) : fd_(-1) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC);
    if (fd < 0) return;
    fd_ = fcntl(fd, F_DUPFD_CLOEXEC, kFirstHighFd);
    close(fd);
  }
  ~HighFd() { Close(); }
  HighFd(const HighFd&) = delete;
  HighFd& operator=(const HighFd&) = delete;
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

// A socket, as journald gives, cannot be opened again. It can be sent to only: nothing is received
// by it, and the list of system calls has no shutdown of it. A file that another user has opened
// cannot either; it will do if it is open to append only.
bool IsHarmlessAsItIs(int standard, SandboxParts parts) {
  struct stat info {};
  if (fstat(standard, &info) != 0) return true;  // closed: there is nothing to pass
  if (!parts.has(SandboxPart::kSystemCalls)) return false;
  if (S_ISSOCK(info.st_mode)) return true;
  const int flags = fcntl(standard, F_GETFL);
  return (flags & O_ACCMODE) == O_WRONLY && (!S_ISREG(info.st_mode) || (flags & O_APPEND) != 0);
}

// Standard output or error, for a program that is not to read what comes from that terminal, nor to
// write anywhere but at the end of that log. Where that cannot be had, nothing of it: /dev/null.
std::unique_ptr<HighFd> AppendingTo(int standard, SandboxParts parts) {
  auto again = std::make_unique<HighFd>(absl::StrCat("/proc/self/fd/", standard),
                                        O_WRONLY | O_APPEND | O_NOCTTY);
  if (again->get() >= 0) return again;
  if (IsSandboxOff() || kIsSanitizersBuild || IsHarmlessAsItIs(standard, parts))
    return std::make_unique<HighFd>(standard);
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    std::fprintf(stderr,
                 "outboard: the log cannot be opened again to append only; what compile processes "
                 "and the search print is dropped\n");
  return std::make_unique<HighFd>("/dev/null", O_WRONLY);
}

// ---- in the child, system calls only (namespaces.h) ---------------------------------------------

struct Prepared {
  const char* file;
  char* const* argv;
  char* const* environment;
  int sync, socket, socket_number, null, out, err;
  bool has_user;
  const cpu_set_t* cores;  // nullptr: the caller's
};

// An exec takes all rights from an id that the namespace does not map, which root's is; ambient
// ones it leaves (capabilities(7)).
bool KeepRightsOverExec() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  for (__user_cap_data_struct& word : data) word.inheritable = word.permitted;
  if (syscall(SYS_capset, &header, data) != 0) return false;
  for (int right = 0; right < 64; ++right)
    if ((data[right / 32].permitted >> (right % 32)) & 1)
      if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, right, 0, 0) != 0) return false;
  return true;
}

// Returns only when something failed, with errno set.
void Exec(const Prepared& child) {
  if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (!AwaitIds(child.sync)) _exit(0);
  if (child.has_user && !KeepRightsOverExec()) return;
  // The C library gives threads stacks of this size.
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur > limits::kStackBytes) {
    stack.rlim_cur = limits::kStackBytes;
    if (setrlimit(RLIMIT_STACK, &stack) != 0) return;
  }
  if (child.cores != nullptr && sched_setaffinity(0, sizeof *child.cores, child.cores) != 0) return;
  if (dup2(child.null, 0) < 0 || dup2(child.socket, child.socket_number) < 0) return;
  // Not there if the supervisor's are closed.
  if ((child.out >= 0 && dup2(child.out, 1) < 0) || (child.err >= 0 && dup2(child.err, 2) < 0))
    return;
  sigset_t none;
  sigemptyset(&none);
  if (sigprocmask(SIG_SETMASK, &none, nullptr) != 0) return;
  execve(child.file, child.argv, child.environment);
}

}  // namespace

absl::StatusOr<pid_t> StartBoxed(const BoxedStart& start) {
  SandboxPlan plan = start.plan;
  const bool has_user = plan.parts.has(SandboxPart::kUser);
  plan.user = has_user ? 0 : plan.parts.has(SandboxPart::kFiles) ? UserWithoutNamespace() : -1;
  std::vector<std::string> environment = start.environment;
  if (!IsSandboxOff() && !kIsSanitizersBuild)
    environment.push_back(absl::StrCat(kSandboxPlanVariable, "=", plan.Encoded()));
  std::vector<std::string> words = start.argv;
  const std::vector<char*> argv = ExecPointers(words), variables = ExecPointers(environment);
  const cpu_set_t cores = CoreMask(start.cores);

  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return absl::UnavailableError(absl::StrCat("no socket pair: ", strerror(errno)));
  HighFd theirs(pair[1]);
  const HighFd ours(pair[0]), socket(start.socket);
  close(pair[0]);
  close(pair[1]);
  const HighFd null("/dev/null", O_RDONLY);
  const auto output = [&](int standard) {
    return start.output >= 0 ? std::make_unique<HighFd>(start.output)
                             : AppendingTo(standard, plan.parts);
  };
  const std::unique_ptr<HighFd> out = output(STDOUT_FILENO), err = output(STDERR_FILENO);
  const Prepared prepared{.file = start.file.empty() ? argv[0] : start.file.c_str(),
                          .argv = argv.data(),
                          .environment = variables.data(),
                          .sync = theirs.get(),
                          .socket = socket.get(),
                          .socket_number = start.socket_number,
                          .null = null.get(),
                          .out = out->get(),
                          .err = err->get(),
                          .has_user = has_user,
                          .cores = start.cores.empty() ? nullptr : &cores};
  pid_t pid;
  {
    const AllSignalsBlocked blocked;
    pid = CloneInto(plan.parts);
    if (pid == 0) {
      close(ours.get());  // else it would not see the end of its parent
      Exec(prepared);
      const int error = errno;
      const ssize_t told = send(prepared.sync, &error, sizeof error, MSG_NOSIGNAL);
      _exit(told > 0 ? 127 : 126);
    }
  }
  const int clone_error = errno;
  theirs.Close();
  if (pid < 0)
    return absl::UnavailableError(
        absl::StrCat("cannot start ", start.argv[0], ": ", strerror(clone_error)));
  int error = 0;  // of the child; an exec closes its end
  const bool has_ids = GiveIds(ours.get(), pid, plan.parts);
  ssize_t got = 0;
  while (has_ids && (got = read(ours.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (!has_ids || got != 0) {
    kill(pid, SIGKILL);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return absl::UnavailableError(
        absl::StrCat("cannot start ", start.argv[0], ": ",
                     has_ids ? strerror(error) : "its ids of a user namespace were refused"));
  }
  return pid;
}

}  // namespace outboard::worker
