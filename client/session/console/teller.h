// What a session says to people, and how often: lines on stderr, or wherever the program wants
// them.
//
// Threads: Tell of any, with no lock held that the program's function could want; MayTellNotice of
// one at a time.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client/session/stats.h"

namespace outboard::transport {

inline constexpr std::chrono::seconds kTellEvery{10};  // what has not changed, and the limit's time

// "a session at box:6667: cpu: Xeon ..., $0.36 an hour"
std::string OpenedLine(const std::string& target, const Stats& stats);
// "the session has ended: 17 runs, ..."
std::string EndedLine(const Stats& stats);
// While a lost gateway is sought, for `left`; once it has answered again; and when it has not.
std::string SeekingLine(const std::string& target, std::chrono::seconds left);
std::string FoundLine(const std::string& target);
absl::Status Unreachable(const std::string& target, bool is_private,
                         std::chrono::steady_clock::duration tried);

class Teller {
 public:
  // An empty function: "outboard: <line>" on stderr.
  explicit Teller(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}

  // `over_progress`: a progress line stands where it goes.
  void Tell(const std::string& line, bool over_progress) const;
  // Once in a process, before the key is sent to another machine: nothing is encrypted.
  void TellOfPlainText(const std::string& target) const;
  // A gateway that has much to say must not fill the program's output.
  bool MayTellNotice(std::chrono::steady_clock::time_point now);

 private:
  const std::function<void(const std::string&)> tell_;
  int notices_ = 0;  // told since
  std::chrono::steady_clock::time_point notices_since_;
};

}  // namespace outboard::transport
