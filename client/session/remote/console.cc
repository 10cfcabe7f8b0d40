#include "client/session/remote/console.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/session/address.h"

namespace outboard::session {

namespace {
constexpr int kNoticesMax = 5;  // lines of the gateway's, in kTellEvery
}  // namespace

std::string OpenedLine(const std::string& target, const Stats& stats) {
  return absl::StrFormat("a session at %s: %s, $%.2f an hour",
                         target.empty() ? "a link of the program's" : target, stats.device,
                         static_cast<double>(stats.price_per_hour_micro_usd) / 1e6);
}

std::string EndedLine(const Stats& stats) {
  return absl::StrFormat(
      "the session has ended: %d runs, %d round trips, %d bytes up, %d down, %.1f s billed",
      stats.runs, stats.blocking_round_trips, stats.bytes_up, stats.bytes_down,
      stats.seconds_billed);
}

std::string SilentLine(const std::string& target, std::chrono::seconds since) {
  return absl::StrCat("no data from the gateway ", target, " for ", since.count(),
                      " s, and no new connection to it; still waiting");
}

std::string HeardLine(const std::string& target) {
  return absl::StrCat("the gateway ", target, " answers again");
}

std::string SeekingLine(const std::string& target, std::chrono::seconds left) {
  return absl::StrCat("the gateway ", target, " does not answer; trying again for ", left.count(),
                      " s");
}

std::string FoundLine(const std::string& target) {
  return absl::StrCat("connected to the gateway ", target, " again; nothing was lost");
}

absl::Status Unreachable(const std::string& target, bool is_private,
                         std::chrono::steady_clock::duration tried) {
  if (is_private) return absl::UnavailableError("the private worker (outboard serve) has ended");
  return absl::UnavailableError(
      absl::StrCat("lost the connection to the gateway ", target, ", which did not answer for ",
                   std::chrono::round<std::chrono::seconds>(tried).count(), " s"));
}

void Teller::Tell(const std::string& line, bool over_progress) const {
  if (tell_) return tell_(line);
  std::fprintf(stderr, "%soutboard: %s\n", over_progress ? "\r\033[K" : "", line.c_str());
}

void Teller::TellOfPlainText(const std::string& target) const {
  static std::atomic<bool> told{false};
  if (IsOnThisMachine(target) || told.exchange(true)) return;
  Tell(absl::StrCat("key and data go to ", target,
                    " unencrypted; over a network that is not yours unset CLOUD_INSECURE"),
       /*over_progress=*/false);
}

bool Teller::MayTellPlace(const std::string& line, std::chrono::steady_clock::time_point now) {
  if (!tell_ && isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "\r\033[Koutboard: %s", line.c_str());
    std::fflush(stderr);
    place_shown_ = true;
    return false;
  }
  if (place_shown_ && now - place_told_ <= kTellEvery) return false;
  place_shown_ = true;
  place_told_ = now;
  return true;
}

void Teller::EndPlace() {
  if (!std::exchange(place_shown_, false) || tell_ || isatty(STDERR_FILENO) == 0) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

bool Teller::MayTellNotice(std::chrono::steady_clock::time_point now) {
  if (now - notices_since_ > kTellEvery) {
    notices_since_ = now;
    notices_ = 0;
  }
  return ++notices_ <= kNoticesMax;
}

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

}  // namespace outboard::session
