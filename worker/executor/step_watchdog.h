// Ends this process when a step runs for too long: a running kernel cannot be cancelled, so its
// process ends, and its session with it. Other sessions have processes of their own.
//
// A step is too long if the progress count (items, and repetitions of a repeated item) has not
// changed for `limit` while a frame is being processed. Compile time counts.
//
// Threads: Working from one thread; the watchdog's own thread checks progress and calls _exit with
// kExitStepTooLong, which the supervisor translates into DEADLINE_EXCEEDED.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace outboard::worker {

inline constexpr int kExitStepTooLong = 75;

class StepWatchdog {
 public:
  // `progress` is called from the watchdog's thread.
  StepWatchdog(std::chrono::milliseconds limit, std::function<uint64_t()> progress);
  ~StepWatchdog();

  bool Working(bool working);  // returns the previous value

 private:
  void Watch();

  const std::chrono::milliseconds limit_;
  const std::function<uint64_t()> progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool working_ = false, stopping_ = false;
  uint64_t spells_ = 0;  // periods of work begun, so that two short ones do not count as a long one
  std::thread thread_;
};

}  // namespace outboard::worker
