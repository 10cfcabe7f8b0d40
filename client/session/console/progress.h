// ConsoleProgress shows the progress line: steps, steps per second, round trips that blocked the
// program, cost. Updated in place once a second, and only after new steps.
//
// Threads: one of its own, which calls `stats` and writes to `out`; joined by the destructor, which
// clears the line.
#pragma once

#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "client/session/stats.h"

namespace outboard::transport {

// Returns "1200 steps, 24.0/s, 41.7 ms each, 3 round trips, $0.0012". `seconds` is the time between
// `before` and `now`.
std::string ProgressLine(const Stats& before, const Stats& now, double seconds);

class ConsoleProgress {
 public:
  ConsoleProgress(std::function<Stats()> stats, std::FILE* out);
  ~ConsoleProgress();
  ConsoleProgress(const ConsoleProgress&) = delete;
  ConsoleProgress& operator=(const ConsoleProgress&) = delete;

 private:
  void Work();

  const std::function<Stats()> stats_;
  std::FILE* const out_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::transport
