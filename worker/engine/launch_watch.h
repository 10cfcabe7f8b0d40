// Who is told which launches a device is waited for, so that one that does not end is noticed
// (worker/executor/launch_watchdog.h).
#pragma once

#include <chrono>
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
};

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
