#include "worker/executor/step_watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace outboard::worker {

using Clock = std::chrono::steady_clock;

StepWatchdog::StepWatchdog(std::chrono::milliseconds limit, std::function<uint64_t()> progress)
    : limit_(limit), progress_(std::move(progress)), thread_([this] { Watch(); }) {}

StepWatchdog::~StepWatchdog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Without a wake-up: the watchdog looks by itself, and steps must not pay for it.
bool StepWatchdog::Working(bool working) {
  std::lock_guard lock(mutex_);
  spells_ += working;
  return std::exchange(working_, working);
}

void StepWatchdog::Watch() {
  const auto period = std::max(limit_ / 16, std::chrono::milliseconds(1));
  std::pair<uint64_t, uint64_t> seen{0, 0};  // what is being worked on: spell, what is done
  Clock::time_point since = Clock::now();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, period, [this] { return stopping_; })) {
    const std::pair<uint64_t, uint64_t> now{spells_, progress_()};
    if (!working_ || now != seen) {
      seen = now;
      since = Clock::now();
    } else if (Clock::now() - since >= limit_) {
      _exit(kExitStepTooLong);
    }
  }
}

}  // namespace outboard::worker
