// Detects when a worker is idle: every item sent to its sessions has been answered, for at least
// the time `quiet`. Has no clock: the time comes with each event.
//
//   busy --the last answer, or the session's end--> quiet --`quiet` later--> idle
//     ^----------------an item is sent-----------------+-------------------------+
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace outboard::worker {

class IdleWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit IdleWatch(std::chrono::milliseconds quiet) : quiet_(quiet) {}

  // An item was sent to the session's executor; seq is 0 for an item without a sequence number.
  void Sent(const std::string& session, uint64_t seq, Time now);
  // The executor has applied all items up to this one.
  void Applied(const std::string& session, uint64_t through_seq, Time now);
  void Ended(const std::string& session, Time now);

  // Returns when the worker becomes idle if no further event comes; nullopt while it is busy.
  std::optional<Time> IdleFrom() const;

 private:
  struct Session {
    uint64_t sent = 0, applied = 0;
  };
  const std::chrono::milliseconds quiet_;
  std::map<std::string, Session> sessions_;
  int busy_ = 0;  // sessions with sent > applied
  Time last_{};
};

}  // namespace outboard::worker
