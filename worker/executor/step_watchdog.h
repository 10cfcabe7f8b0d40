// Ends this process when a step runs for too long: a kernel cannot be told to stop, so the process
// that runs it is, and with it the session that asked for it. Others have processes of their own.
//
// A step is too long when the count of what is done (items, and repetitions of a repeated one) has
// not moved for `limit` though a frame is being worked on. Compiling counts.
//
// Threads: Working from one thread; a thread of the watchdog's own looks on and calls _exit with
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

  bool Working(bool working);  // whether it was

 private:
  void Watch();

  const std::chrono::milliseconds limit_;
  const std::function<uint64_t()> progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool working_ = false, stopping_ = false;
  uint64_t spells_ = 0;  // of work begun: two short ones are not a long one
  std::thread thread_;
};

}  // namespace outboard::worker
