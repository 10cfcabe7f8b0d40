#include "worker/executor/launch_watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace outboard::worker {

using std::chrono::milliseconds;

LaunchWatchdog::LaunchWatchdog(milliseconds bound, std::function<void(const std::string&)> on_late,
                               const char* variable)
    : bound_(bound),
      on_late_(std::move(on_late)),
      variable_(variable),
      thread_([this] { Watch(); }) {}

LaunchWatchdog::~LaunchWatchdog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Without a wake-up: the watchdog looks by itself, and launches must not pay for it.
void LaunchWatchdog::Begin(std::string_view what, milliseconds longest) {
  std::lock_guard lock(mutex_);
  what_ = what;
  longest_ = longest;
  since_ = Clock::now();
  waiting_ = true;
}

void LaunchWatchdog::End() {
  std::lock_guard lock(mutex_);
  waiting_ = false;
}

void LaunchWatchdog::LostIn(std::string_view what) {
  if (lost_in_.empty()) lost_in_ = what;
}

void LaunchWatchdog::Watch() {
  const milliseconds period = std::max(bound_ / 16, milliseconds(1));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, period, [this] { return stopping_; })) {
    if (!waiting_ || Clock::now() - since_ < longest_) continue;
    const std::string line =
        absl::StrCat(what_, " was not done after ",
                     absl::StrFormat("%.1f s", static_cast<double>(longest_.count()) * 1e-3),
                     " and was stopped (", longest_ < bound_ ? "its own bound, below " : "",
                     variable_, ")");
    lock.unlock();
    on_late_(line);
    return;
  }
}

}  // namespace outboard::worker
