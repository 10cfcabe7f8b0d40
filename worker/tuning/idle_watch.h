// When a worker has nothing to do: every item that its sessions were sent is answered, and that for
// a while. A core without clocks: time comes with each event.
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

  // An item went to the session's executor; 0 for one that has no sequence number.
  void Sent(const std::string& session, uint64_t seq, Time now);
  // The executor has applied all items up to this one.
  void Applied(const std::string& session, uint64_t through_seq, Time now);
  void Ended(const std::string& session, Time now);

  // From when on the worker is idle, if nothing comes; nullopt while it is busy.
  std::optional<Time> IdleFrom() const;

 private:
  struct Session {
    uint64_t sent = 0, applied = 0;
  };
  const std::chrono::milliseconds quiet_;
  std::map<std::string, Session> sessions_;
  int busy_ = 0;  // sessions that were sent more than they have applied
  Time last_{};
};

}  // namespace outboard::worker
