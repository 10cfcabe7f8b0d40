// The child must end with us, also when we are killed. PR_SET_PDEATHSIG alone would fire when the
// THREAD that forked ends, which in a program with a pool of threads is any time; a pipe that
// closes with the process is exact.
#include "client/session/link/private_serve.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/exec_arguments.h"
#include "client/session/waiting.h"

namespace outboard::session {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReadyWithin{20};  // a cold start reads LLVM from disk
constexpr std::chrono::seconds kStopWithin{5};

bool IsProgram(const std::string& path) {
  std::error_code error;  // a folder may be executable, too
  return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

std::string NamedByUser() {
  const char* const named = getenv("OUTBOARD_BIN");
  return named != nullptr ? named : "";
}

// True once the child wrote its ready line; false when it ended or the time is over. Errors: a
// hook's.
absl::StatusOr<bool> AwaitReady(int fd, Clock::time_point deadline) {
  char line[256];
  for (;;) {
    if (Clock::now() >= deadline) return false;
    pollfd poller{fd, POLLIN, 0};
    int events = poll(&poller, 1, static_cast<int>(kWaitCheckEvery.count()));
    if (events < 0 && errno != EINTR) return false;
    if (events <= 0) {
      OB_RETURN_IF_ERROR(Waiting::Check());
      continue;
    }
    ssize_t got = read(fd, line, sizeof line);
    if (got < 0 && errno == EINTR) continue;
    return got > 0;
  }
}

// A fork's child must not keep the serve alive: it lives with the process that started it.
std::atomic<int> life_fd_of_parent{-1};
[[maybe_unused]] const int kLeftBehind = pthread_atfork(nullptr, nullptr, [] {
  if (life_fd_of_parent >= 0) close(life_fd_of_parent);
});

}  // namespace

std::string FindOutboardBinary() {
  if (const std::string named = NamedByUser(); !named.empty()) return IsProgram(named) ? named : "";
  // A wheel has it in outboard/bin, beside the module that this library is part of.
  if (Dl_info module; dladdr(&life_fd_of_parent, &module) != 0 && module.dli_fname != nullptr) {
    const std::filesystem::path folder = std::filesystem::path(module.dli_fname).parent_path();
    if (std::string path = folder / "bin" / "outboard"; IsProgram(path)) return path;
  }
  std::error_code error;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  // Tests lie in build/tests, programs in build/bin.
  for (const char* beside : {"outboard", "../bin/outboard"}) {
    if (error) break;
    std::string path = (self.parent_path() / beside).lexically_normal();
    if (IsProgram(path)) return path;
  }
  const char* path = getenv("PATH");
  for (const std::string& folder :
       std::vector<std::string>(absl::StrSplit(path ? path : "", ':'))) {
    if (!folder.empty() && IsProgram(folder + "/outboard")) return folder + "/outboard";
  }
  return "";
}

struct PrivateServe::Shared {
  std::mutex mutex;
  std::weak_ptr<PrivateServe> running;
};

PrivateServe::Shared& PrivateServe::TheOne() {
  static Shared& shared = *new Shared;  // outlives every static session
  return shared;
}

bool PrivateServe::Running() {
  auto& [mutex, running] = TheOne();
  // Get() holds the mutex while one starts, and meanwhile may wait for what the caller holds.
  const std::unique_lock lock(mutex, std::try_to_lock);
  return !lock.owns_lock() || !running.expired();
}

absl::StatusOr<std::shared_ptr<PrivateServe>> PrivateServe::Get(uint32_t devices) {
  auto& [mutex, running] = TheOne();
  std::lock_guard lock(mutex);
  if (auto serve = running.lock(); serve != nullptr && devices <= serve->devices_ &&
                                   waitpid(serve->pid_, nullptr, WNOHANG) == 0)
    return serve;
  std::string binary = FindOutboardBinary();
  if (const std::string named = NamedByUser(); binary.empty() && !named.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "OUTBOARD_BIN names \"", named,
        "\", which is no program that can be run; name `outboard`, "
        "which scripts/setup leaves in build/bin, or unset it to look beside this program and on "
        "PATH"));
  }
  if (binary.empty()) {
    return absl::UnavailableError(
        "no `outboard` binary beside this program or on PATH; set CLOUD=1 and CLOUD_HOST to use a "
        "gateway, or put outboard on PATH (or name it in OUTBOARD_BIN): scripts/setup leaves it in "
        "build/bin");
  }
  auto serve = Start(binary, devices);
  if (serve.ok()) running = *serve;
  return serve;
}

absl::StatusOr<std::shared_ptr<PrivateServe>> PrivateServe::Start(const std::string& binary,
                                                                uint32_t devices) {
  std::shared_ptr<PrivateServe> serve(new PrivateServe);
  serve->devices_ = std::max(devices, kServeDevices);
  std::string pattern = (std::filesystem::temp_directory_path() / "outboard-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("no temporary folder: ", strerror(errno)));
  }
  serve->folder_ = pattern;
  serve->target_ = "unix:" + pattern + "/s";

  int life[2], ready[2];
  if (pipe2(life, O_CLOEXEC) != 0)
    return absl::UnavailableError(absl::StrCat("pipe: ", strerror(errno)));
  if (pipe2(ready, O_CLOEXEC) != 0) {
    close(life[0]), close(life[1]);
    return absl::UnavailableError(absl::StrCat("pipe: ", strerror(errno)));
  }
  // Everything that allocates happens before the fork: another thread may hold the heap's lock.
  std::vector<std::string> args = {binary,
                                   "serve",
                                   "--listen",
                                   serve->target_,
                                   "--data",
                                   pattern,
                                   "--no-auth",
                                   "--ephemeral",
                                   "--quiet",
                                   "--price",
                                   "0",
                                   "--life-fd",
                                   absl::StrCat(life[0]),
                                   "--ready-fd",
                                   absl::StrCat(ready[1])};
  if (devices > kServeDevices) args.insert(args.end(), {"--devices", absl::StrCat(devices)});
  const std::vector<char*> argv = ExecPointers(args);  // a forked child allocates nothing
  pid_t pid = fork();
  if (pid == 0) {
    fcntl(life[0], F_SETFD, 0);
    fcntl(ready[1], F_SETFD, 0);
    setpgid(0, 0);  // a Ctrl-C is for the program, which then closes its session in order
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(life[0]);
  close(ready[1]);
  serve->life_fd_ = life_fd_of_parent = life[1];
  serve->pid_ = pid;
  const absl::StatusOr<bool> is_ready = AwaitReady(ready[0], Clock::now() + kReadyWithin);
  close(ready[0]);
  if (!is_ready.ok()) return is_ready.status();
  if (pid <= 0 || !*is_ready) {
    return absl::UnavailableError(
        absl::StrCat("`", binary, " serve` did not start; see its messages above"));
  }
  return serve;
}

PrivateServe::~PrivateServe() {
  int mine = life_fd_;
  life_fd_of_parent.compare_exchange_strong(mine, -1);
  if (life_fd_ >= 0) close(life_fd_);
  if (pid_ > 0) {
    auto deadline = Clock::now() + kStopWithin;
    // waitpid has no timeout, and this is the end of the program: a short nap is good enough.
    while (waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (Clock::now() > deadline) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace outboard::session
