#include "worker/supervisor/driver_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "telemetry/log.h"
#include "worker/process/child_process.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

// Of what a driver prints, from its end: its last line is the reason.
constexpr size_t kOutputBytesMax = 4 << 10, kReasonBytesMax = 300;
// After its own bound it ends itself, unless it waits within the kernel.
constexpr double kMarginSeconds = 10;
constexpr int kTriesMax = 3;
constexpr int64_t kLooksEveryMs = 100;  // whether it is to stop

// What a trial has found.
struct Found {
  bool works = false;
  size_t count = 0;    // of devices, as TryDeviceMain says
  std::string reason;  // if it does not work
  bool says_little = false;  // it was killed, or did not answer: that may be chance

  bool IsBetterThan(const Found& other) const {
    return works && (!other.works || count > other.count);
  }
};

// The last line that is not empty, as a part of a line of the log.
std::string LastLine(absl::string_view output) {
  output = absl::StripTrailingAsciiWhitespace(output);
  output = output.substr(output.rfind('\n') + 1);
  std::string line(output.substr(0, kReasonBytesMax));
  for (char& c : line)
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  return line;
}

// Adds what can be read now, and keeps the end. False: nothing came, and nothing will.
bool ReadSome(int fd, std::string& text) {
  char piece[1024];
  const ssize_t got = read(fd, piece, sizeof piece);
  if (got <= 0) return got < 0 && errno == EINTR;
  text.append(piece, static_cast<size_t>(got));
  if (text.size() > kOutputBytesMax) text.erase(0, text.size() - kOutputBytesMax);
  return true;
}

Found Try(const std::vector<std::string>& executor, const ExecutorMainOptions& options,
          SandboxParts parts, const std::atomic<bool>& stopping) {
  const Clock::time_point begun = Clock::now();
  Found found;
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) {
    found.reason = "no pipe";
    return found;
  }
  auto child = ChildProcess::Start(executor, {.profile = SandboxProfile::kExecutor,
                                              .environment = {absl::StrCat(kTryDevice, "=1")},
                                              .output = output[1],
                                              .parts = parts});
  close(output[1]);
  std::string answer, printed;
  if (child.ok()) {
    const auto until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                           options.device_seconds_max + kMarginSeconds));
    pollfd waited[2] = {{child->fd(), POLLIN, 0}, {output[0], POLLIN, 0}};
    while (waited[0].fd >= 0 && !stopping) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) break;
      if (poll(waited, 2, static_cast<int>(std::min<int64_t>(left, kLooksEveryMs))) <= 0) continue;
      if (waited[0].revents != 0 && !ReadSome(waited[0].fd, answer)) waited[0].fd = -1;
      if (waited[1].revents != 0 && !ReadSome(waited[1].fd, printed)) waited[1].fd = -1;
    }
    const ChildEnd end = waited[0].fd < 0 ? child->Wait(1000) : child->Stop();
    fcntl(output[0], F_SETFL, O_NONBLOCK);  // what it left behind may hold the pipe
    while (ReadSome(output[0], printed)) {
    }
    found.works = absl::SimpleAtoi(absl::StripAsciiWhitespace(answer), &found.count);
    const bool is_late =
        Clock::now() - begun >= std::chrono::duration<double>(options.device_seconds_max);
    found.says_little = !found.works && (end.IsSignal(SIGKILL) || is_late);
    found.reason = LastLine(printed);
    if (found.reason.empty()) found.reason = absl::StrCat("an executor ", end.ToString());
  } else {
    found.reason = LastLine(child.status().message());
  }
  close(output[0]);
  return found;
}

}  // namespace

std::chrono::seconds DriverTrialTakesAtMost(const ExecutorMainOptions& options) {
  return std::chrono::seconds(
      static_cast<int64_t>(kTriesMax * (options.device_seconds_max + kMarginSeconds + 1)));
}

void TryDriverBehindWalls(const std::vector<std::string>& executor,
                          const ExecutorMainOptions& options, size_t device_count,
                          const std::atomic<bool>& stopping) {
  if (!NeedsDriver() || PartsFor(SandboxProfile::kExecutor).none()) return;
  if (const char* const device = std::getenv("OUTBOARD_DEVICE");
      device != nullptr && std::string_view(device) == "opencl")
    return DoWithoutDriverWalls("OpenCL drivers compile and link by programs of the machine");
  const Clock::time_point begun = Clock::now();
  const Found first = Try(executor, options, SandboxParts::All(), stopping);
  Found behind_walls = first;
  std::string why;
  if (!behind_walls.works || behind_walls.count < device_count) {
    const Found without = Try(executor, options, PartsWithoutDriverWalls(), stopping);
    if (without.IsBetterThan(behind_walls))
      behind_walls = Try(executor, options, SandboxParts::All(), stopping);
    if (stopping) return;
    if (without.IsBetterThan(behind_walls)) {
      if (behind_walls.says_little) behind_walls = first;  // which may say more
      if (behind_walls.works)
        why =
            absl::StrCat("it shows ", behind_walls.count, " of ", without.count, " devices there");
      else if (!behind_walls.says_little)
        why = behind_walls.reason;
      else
        telemetry::LogWarning(
            "driver_silent_behind_walls",
            {{"message", behind_walls.reason},
             {"effect", "sessions have the walls and may fail as the driver did: if they do, serve "
                        "without any sandbox, one account at a time (OUTBOARD_SANDBOX=0)"}});
    }
  }
  if (!why.empty()) DoWithoutDriverWalls(why);
  telemetry::LogInfo(
      "driver_tried",
      {{"behind_walls", why.empty()},
       {"message", behind_walls.works ? why : behind_walls.reason},
       {"ms",
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun).count()}});
}

}  // namespace outboard::worker
