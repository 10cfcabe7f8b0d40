// Ends this process when a launch outlives its bound: nobody can stop a kernel on a GPU, but the
// driver takes the device back from a process that has ended. A step has a bound of its own
// (step_watchdog.h), which is longer and knows no kernel.
//
// Threads: Begin, End, LostIn and lost_in from one; the watchdog's own thread calls `on_late`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "worker/engine/launch_watch.h"

namespace outboard::worker {

inline constexpr int kExitLaunchTooLong = 77;

class LaunchWatchdog final : public LaunchWatch {
 public:
  // `on_late` gets a line for people: which launch, how long it was waited for, the `variable` that
  // sets the bound, and whether the launch had a shorter one of its own. It ends the process;
  // nothing is watched after it.
  LaunchWatchdog(std::chrono::milliseconds bound, std::function<void(const std::string&)> on_late,
                 const char* variable = "OUTBOARD_LAUNCH_SECONDS");
  ~LaunchWatchdog() override;

  std::chrono::milliseconds bound() const override { return bound_; }
  void Begin(std::string_view what, std::chrono::milliseconds longest) override;
  void End() override;
  void LostIn(std::string_view what) override;
  const std::string& lost_in() const { return lost_in_; }  // the first; empty: not known

 private:
  using Clock = std::chrono::steady_clock;
  void Watch();

  const std::chrono::milliseconds bound_;
  const std::function<void(const std::string&)> on_late_;
  const char* const variable_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, waiting_ = false;
  std::string what_;  // while waiting
  std::string lost_in_;
  std::chrono::milliseconds longest_{};
  Clock::time_point since_;
  std::thread thread_;
};

}  // namespace outboard::worker
