#include "client/session/console/progress.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"

namespace outboard::transport {

namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kEvery{1};
constexpr char kClearLine[] = "\r\033[K";
}  // namespace

std::string ProgressLine(const Stats& before, const Stats& now, double seconds) {
  const auto steps = static_cast<double>(now.steps - before.steps);
  return absl::StrFormat("%d steps, %.1f/s, %.2f ms each, %d round trips, $%.4f", now.steps,
                         steps / seconds, 1e3 * seconds / steps, now.blocking_round_trips,
                         static_cast<double>(now.cost_micro_usd) / 1e6);
}

ConsoleProgress::ConsoleProgress(std::function<Stats()> stats, std::FILE* out)
    : stats_(std::move(stats)), out_(out), thread_([this] { Work(); }) {}

ConsoleProgress::~ConsoleProgress() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ConsoleProgress::Work() {
  Stats before = stats_();
  Clock::time_point at = Clock::now();
  bool shown = false;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kEvery, [this] { return stopping_; })) {
    const Stats now = stats_();
    const Clock::time_point time = Clock::now();
    if (now.steps > before.steps) {
      const double seconds = std::chrono::duration<double>(time - at).count();
      std::fprintf(out_, "%s%s", kClearLine, ProgressLine(before, now, seconds).c_str());
      std::fflush(out_);
      shown = true;
    }
    before = now;
    at = time;
  }
  if (!shown) return;
  std::fputs(kClearLine, out_);
  std::fflush(out_);
}

}  // namespace outboard::transport
