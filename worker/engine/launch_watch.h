// Who is told which launches a device is waited for, so that one that does not end is noticed
// (worker/executor/launch_watchdog.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace outboard::worker {

class LaunchWatch {
 public:
  virtual ~LaunchWatch() = default;

  // Of a launch alone. What is known of a kernel's cost comes on top.
  virtual std::chrono::milliseconds bound() const = 0;
  // This thread waits for `what` from now on, at most for `longest`.
  virtual void Begin(std::string_view what, std::chrono::milliseconds longest) = 0;
  virtual void End() = 0;
  // The device was lost to this process in `what`, which was waited for: the driver's error names
  // no kernel.
  virtual void LostIn(std::string_view what) = 0;
};

// Of work that took `us` before, which other clocks, caches and inputs may make slower; 0 with a
// null watch.
inline std::chrono::milliseconds LongestOf(const LaunchWatch* watch, double us) {
  constexpr double kSlower = 16, kMostMs = 1e3 * 86'400;  // a day: keeps the sum in its type
  if (watch == nullptr) return {};
  return watch->bound() +
         std::chrono::milliseconds(static_cast<int64_t>(std::min(us * kSlower / 1e3, kMostMs)));
}

// The wait within a scope; none with a null watch.
class WatchedWait {
 public:
  WatchedWait(LaunchWatch* watch, std::string_view what, std::chrono::milliseconds longest)
      : watch_(watch) {
    if (watch_ != nullptr) watch_->Begin(what, longest);
  }
  ~WatchedWait() {
    if (watch_ != nullptr) watch_->End();
  }
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

 private:
  LaunchWatch* const watch_;
};

}  // namespace outboard::worker
