// A session's lines for people: messages, and one line that shows progress.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "client/session/stats.h"

namespace outboard::session {

inline constexpr std::chrono::seconds kTellEvery{10};  // repeat interval, and the limit's period

// "a session at box:6667: cpu: Xeon ..., $0.36 an hour"
std::string OpenedLine(const std::string& target, const Stats& stats);
// "the session has ended: 17 runs, ..."
std::string EndedLine(const Stats& stats);
// Messages while a caller waits for a gateway that nothing comes from, and when something does.
std::string SilentLine(const std::string& target, std::chrono::seconds since);
std::string HeardLine(const std::string& target);
// Messages while reconnecting to a lost gateway, with `left` remaining; after success; after
// failure.
std::string SeekingLine(const std::string& target, std::chrono::seconds left);
std::string FoundLine(const std::string& target);
// Returns UNAVAILABLE.
absl::Status Unreachable(const std::string& target, bool is_private,
                         std::chrono::steady_clock::duration tried);

// Writes a session's messages for people, rate-limited: lines on stderr, or to a function of the
// program.
//
// Threads: Tell from any thread, with no lock held that the program's function could need;
// MayTellNotice, MayTellPlace and EndPlace from one at a time.
class Teller {
 public:
  // An empty function: "outboard: <line>" on stderr.
  explicit Teller(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}

  // `over_progress`: a progress line occupies the current terminal line.
  void Tell(const std::string& line, bool over_progress) const;
  // Once per process, before the key is sent to another machine: warns that nothing is encrypted.
  void TellOfPlainText(const std::string& target) const;
  // A place in the queue. On a terminal it is shown at once, in place of the last; else true: it
  // may be told as a line, the first at once and others now and then.
  bool MayTellPlace(const std::string& line, std::chrono::steady_clock::time_point now);
  void EndPlace();  // there is a device: clears what is on the terminal
  // Limits notices of the gateway, which must not flood the program's output.
  bool MayTellNotice(std::chrono::steady_clock::time_point now);

 private:
  const std::function<void(const std::string&)> tell_;
  bool place_shown_ = false;
  std::chrono::steady_clock::time_point place_told_;
  int notices_ = 0;  // written since
  std::chrono::steady_clock::time_point notices_since_;
};

// ConsoleProgress shows the progress line: steps, steps per second, round trips that blocked the
// program, cost. Updated in place once a second, and only after new steps.
//
// Threads: one of its own, which calls `stats` and writes to `out`; joined by the destructor, which
// clears the line.

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

}  // namespace outboard::session
