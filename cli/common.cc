#include "cli/common.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cores.h"
#include "base/environment.h"
#include "base/exec_arguments.h"
#include "base/printable.h"
#include "cli/service_manager.h"

namespace outboard::cli {

namespace {

constexpr std::chrono::seconds kChildStopsWithin{8};

sigset_t OurSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

// This thread runs on these cores until the end of the scope, and what it starts, for ever. Empty,
// or cores that the machine refuses: nothing changes.
class OnCores {
 public:
  explicit OnCores(const std::vector<int>& cores) {
    if (cores.empty() || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    const cpu_set_t set = CoreMask(cores);
    changed_ = sched_setaffinity(0, sizeof set, &set) == 0;
  }
  ~OnCores() {
    if (changed_) sched_setaffinity(0, sizeof before_, &before_);
  }
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

 private:
  cpu_set_t before_;
  bool changed_ = false;
};

absl::Status WriteLine(int fd, const std::string& line) {
  return write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size())
             ? absl::OkStatus()
             : absl::UnavailableError(
                   absl::StrCat("cannot tell that we are ready: ", strerror(errno)));
}

}  // namespace

int ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 0;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kInvalidArgument: return 2;
    default: return 1;
  }
}

int Report(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "outboard: %.*s\n", static_cast<int>(status.message().size()),
                 status.message().data());
  }
  return ExitCodeFor(status);
}

absl::Status NoSuchKey(std::string_view id) {
  const std::string what =
      id.starts_with("ob_") ? "there is no key with that id, which looks like a key itself"
                            : absl::StrCat("there is no key with the id \"", Printable(id), "\"");
  return absl::NotFoundError(absl::StrCat(what, "; `outboard key ls` lists the ids of all keys"));
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&out, "\\u", absl::Hex(c, absl::kZeroPad4));
      continue;
    }
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out + "\"";
}

std::string Plural(int64_t count, std::string_view what) {
  return absl::StrCat(count, " ", std::string(what), count == 1 ? "" : "s");
}

std::string DefaultDataFolder() {
  if (const char* folder = std::getenv("OUTBOARD_DATA"); folder != nullptr && *folder != 0)
    return folder;
  if (const char* folder = std::getenv("XDG_DATA_HOME"); folder != nullptr && *folder != 0) {
    return absl::StrCat(folder, "/outboard");
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == 0) {
    const passwd* user = getpwuid(getuid());
    home = user != nullptr ? user->pw_dir : ".";
  }
  return absl::StrCat(home, "/.local/share/outboard");
}

std::string DataFolderOr(const std::string& data) {
  return data.empty() ? DefaultDataFolder() : data;
}

absl::Status TellReady(const ReadyOptions& options, const std::string& address,
                       const std::string& fleet_address, const std::string& fingerprint,
                       const std::string& metrics_address) {
  std::string line = absl::StrCat("ready ", address, "\n");
  if (!options.quiet) {
    std::printf("outboard %s", line.c_str());
    if (!fleet_address.empty()) std::printf("workers join at %s\n", fleet_address.c_str());
    if (!fingerprint.empty())
      std::printf("clients need CLOUD_FINGERPRINT=%s\n", fingerprint.c_str());
    if (!metrics_address.empty())
      std::printf("metrics are at http://%s/metrics\n", metrics_address.c_str());
    std::fflush(stdout);
  }
  if (options.fd >= 0) {
    absl::Status status = WriteLine(options.fd, line);
    close(options.fd);
    if (!status.ok()) return status;
  }
  ServiceManager::OfProcess().Ready();
  if (options.file.empty()) return absl::OkStatus();
  std::string temporary = absl::StrCat(options.file, ".", getpid());
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return absl::InvalidArgumentError(absl::StrCat("--ready-file: ", strerror(errno)));
  std::string lines = address + "\n";
  if (!fleet_address.empty()) absl::StrAppend(&lines, fleet_address, "\n");
  if (!metrics_address.empty()) absl::StrAppend(&lines, "metrics ", metrics_address, "\n");
  absl::Status status = WriteLine(fd, lines);
  close(fd);
  if (status.ok() && rename(temporary.c_str(), options.file.c_str()) != 0) {
    status = absl::InvalidArgumentError(absl::StrCat("--ready-file: ", strerror(errno)));
  }
  return status;
}

std::string TakeSecret(const char* name) {
  char* const place = std::getenv(name);
  if (place == nullptr) return "";
  const std::string secret = place;
  // Not by memset, which a compiler may leave out.
  for (volatile char* at = place; *at != 0; at = at + 1) *at = 0;
  unsetenv(name);
  return secret;
}

void ForbidCoreDumps() {
  if (IsSet("OUTBOARD_CORE_DUMPS")) return;
  // One byte: 0 would still be piped to a handler that core_pattern names, and 1 is the kernel's
  // own word for "not even that" (fs/coredump.c).
  const rlimit limit{1, 1};
  setrlimit(RLIMIT_CORE, &limit);
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void BecomeServer(int life_fd, const ReadyOptions& ready) {
  for (const int fd : {life_fd, ready.fd})
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  BlockSignals();
}

void BlockSignals() {
  sigset_t set = OurSignals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit then fails with an error
}

void BlockHangups() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

// Detects by its pid a parent that died before we asked for the signal.
void EndWith(int parent_pid) {
  if (parent_pid <= 0) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent_pid) raise(SIGTERM);
}

absl::Status AwaitEnd(int life_fd, const std::function<absl::Status()>& on_child,
                      const std::function<void()>& on_hangup) {
  sigset_t set = OurSignals();
  if (on_hangup) sigaddset(&set, SIGHUP);
  int signals = signalfd(-1, &set, SFD_CLOEXEC);
  if (signals < 0) return absl::InternalError(absl::StrCat("signalfd: ", strerror(errno)));
  absl::Status status;
  for (bool ended = false; !ended && status.ok();) {
    pollfd fds[2] = {{signals, POLLIN, 0},
                     {life_fd, POLLIN, 0}};  // poll ignores a negative descriptor
    const auto& every = ServiceManager::OfProcess().watchdog_every();
    ServiceManager::OfProcess().Alive();
    if (poll(fds, 2, every.has_value() ? static_cast<int>(every->count()) : -1) < 0) {
      if (errno == EINTR) continue;
      status = absl::InternalError(absl::StrCat("poll: ", strerror(errno)));
      break;
    }
    ended = fds[1].revents != 0;
    signalfd_siginfo info;
    if (fds[0].revents == 0 || read(signals, &info, sizeof info) != sizeof info) continue;
    if (info.ssi_signo == SIGHUP) {
      on_hangup();
    } else if (info.ssi_signo != SIGCHLD) {
      ended = true;
    } else if (on_child) {
      status = on_child();
    }
  }
  close(signals);
  ServiceManager::OfProcess().Stopping();
  // A second Ctrl-C ends the process without waiting for the shutdown.
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_UNBLOCK, &interrupt, nullptr);
  return status;
}

absl::StatusOr<Child> Child::Start(std::vector<std::string> args,
                                   std::vector<std::string> environment,
                                   const std::vector<int>& cores) {
  int life[2];
  if (pipe2(life, O_CLOEXEC) != 0)
    return absl::UnavailableError(absl::StrCat("pipe: ", strerror(errno)));
  constexpr int kLifeFd = 3;  // the child's own number
  args.insert(args.begin(), "outboard");
  args.push_back("--life-fd");
  args.push_back(absl::StrCat(kLifeFd));
  std::vector<std::string> variables = EnvironmentWith(std::move(environment));

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // dup2 onto itself would keep close-on-exec, so a pipe that already has number 3 is moved to
  // another number first.
  int from = life[0];
  if (from == kLifeFd) from = fcntl(life[0], F_DUPFD_CLOEXEC, 10);
  posix_spawn_file_actions_adddup2(&actions, from, kLifeFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // A session of its own. Ctrl-C reaches the parent alone, which stops its children in order. And
  // the kernel shares processor time among sessions first (sched(7), autogroups): executors and
  // compilers have one each, and many of them would leave gateway and workers, as one, too little
  // to send heartbeats.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  int error;
  {
    const OnCores inherited(cores);
    error = posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, ExecPointers(args).data(),
                        ExecPointers(variables).data());
  }
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(life[0]);
  if (from != life[0]) close(from);
  if (error != 0) {
    close(life[1]);
    return absl::UnavailableError(absl::StrCat("cannot start a worker: ", strerror(error)));
  }
  return Child(pid, life[1]);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), life_fd_(std::exchange(other.life_fd_, -1)) {}
Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(life_fd_, other.life_fd_);
  return *this;
}
Child::~Child() { Stop(); }

void Child::Stop() {
  if (life_fd_ >= 0) close(std::exchange(life_fd_, -1));
  if (pid_ <= 0) return;
  auto deadline = std::chrono::steady_clock::now() + kChildStopsWithin;
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_ = -1;
}

}  // namespace outboard::cli
