#include "worker/devices/device_rates.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/environment.h"
#include "base/exec_arguments.h"

namespace outboard::worker {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLineBytesMax = 200;
constexpr char kFault[] = "fault: ";

// Reads until the end, or the time; false: the time.
bool ReadAll(int fd, Clock::time_point until, std::string& out) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waited{fd, POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(left)) <= 0) {
      if (errno == EINTR) continue;
      return false;
    }
    char piece[256];
    const ssize_t bytes = read(fd, piece, sizeof piece);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return true;
    out.append(piece, std::min(static_cast<size_t>(bytes), kLineBytesMax - out.size()));
  }
}

}  // namespace

bool MeasuresGpusAtStart() {
  if (std::getenv("OUTBOARD_MEASURE") != nullptr) return IsSet("OUTBOARD_MEASURE");
  return std::getenv("OUTBOARD_CUDA_DRIVER") == nullptr;
}

std::string RatesLine(const proto::DeviceRates& rates) {
  return absl::StrCat("gflops=", rates.gflops(), " memory_gb_per_s=", rates.memory_gb_per_s(),
                      "\n");
}

std::string FaultLine(const std::string& fault) { return absl::StrCat(kFault, fault, "\n"); }

absl::StatusOr<proto::DeviceRates> RatesFromLine(const std::string& line, bool without_gflops) {
  proto::DeviceRates rates;
  double gflops = -1, memory = -1;
  for (absl::string_view part : absl::StrSplit(absl::StripSuffix(line, "\n"), ' ')) {
    if (absl::ConsumePrefix(&part, "gflops=")) {
      if (!absl::SimpleAtod(part, &gflops)) gflops = -1;
    } else if (absl::ConsumePrefix(&part, "memory_gb_per_s=")) {
      if (!absl::SimpleAtod(part, &memory)) memory = -1;
    }
  }
  if (!((gflops > 0 || (without_gflops && gflops == 0)) && std::isfinite(gflops)) ||
      !(memory > 0 && std::isfinite(memory)))
    return absl::UnavailableError("it printed no figures");
  rates.set_gflops(gflops);
  rates.set_memory_gb_per_s(memory);
  return rates;
}

absl::StatusOr<proto::DeviceRates> MeasureDevice(const std::vector<std::string>& command,
                                                 const std::vector<std::string>& environment,
                                                 const std::vector<int>& cores,
                                                 std::chrono::milliseconds within,
                                                 const std::string& what) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0)
    return absl::UnavailableError(absl::StrCat("pipe: ", strerror(errno)));
  std::vector<std::string> argv = command;
  argv.push_back(absl::StrJoin(cores, ","));
  if (!what.empty()) argv.push_back(what);
  std::vector<std::string> variables = EnvironmentWith(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv.front().c_str(), &actions, nullptr,
                                ExecPointers(argv).data(), ExecPointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  if (error != 0) {
    close(pipe_fds[0]);
    return absl::UnavailableError(absl::StrCat(argv.front(), ": ", strerror(error)));
  }
  std::string line;
  const bool in_time = ReadAll(pipe_fds[0], Clock::now() + within, line);
  close(pipe_fds[0]);
  if (!in_time) kill(pid, SIGKILL);
  int how = 0;
  while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
  }
  if (!in_time)
    return absl::DeadlineExceededError(
        absl::StrCat("it took longer than ", within.count(), " ms"));
  if (WIFEXITED(how) && WEXITSTATUS(how) == kExitFaulty && line.starts_with(kFault))
    return absl::FailedPreconditionError(
        absl::StripSuffix(absl::string_view(line).substr(sizeof kFault - 1), "\n"));
  if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
    return absl::UnavailableError(
        WIFEXITED(how) ? absl::StrCat("it exited with ", WEXITSTATUS(how))
                       : absl::StrCat("it ended by signal ", WTERMSIG(how)));
  return RatesFromLine(line, what == kTestAlone);
}

}  // namespace outboard::worker
