// Runs the search process (search_main.h) while the worker is idle, and kills it as soon as an item
// is sent to a session: its current measurement is lost, and the session does not wait for it.
//
// The search belongs to no session: it holds no lease, sends no frame to the gateway, does not
// delay the release of a device and is not billed.
//
//   waiting --idle, and work was done since--> searching --its end: none left--> waiting
//                                               +--Sent: killed--> waiting
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/process/child_process.h"

namespace outboard::worker {

// Detects when a worker is idle: every item sent to its sessions has been answered, for at least
// the time `quiet`. Has no clock: the time comes with each event.
//
//   busy --the last answer, or the session's end--> quiet --`quiet` later--> idle
//     ^----------------an item is sent-----------------+-------------------------+

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

// What one search process needs of its worker; destroyed when the process has ended.
class SearchJob {
 public:
  virtual ~SearchJob() = default;
  // Gives it to the process, which has just been started.
  virtual void Begin(const ChildProcess& process) = 0;
};

struct IdleSearcherOptions {
  std::vector<std::string> command;  // of the search process
  std::vector<int> cores = {};       // that it may use; empty: all
  // Of the arrays that it measures kernels on: those of a session have no more. 0: no limit.
  uint64_t memory_bytes_max = 0;
  // Prepares the next search of a round; nullptr: nothing is left to search for. A round begins
  // when the worker is idle and work was done since the last (`new_round`), and goes on until it is
  // nullptr. From the searcher's thread. Empty: a round is one search, which needs nothing.
  std::function<std::unique_ptr<SearchJob>(bool new_round)> prepare = {};
  // Time from the last answer to the start of a search: longer than the pause of a training loop
  // between two steps, such as reading a batch or writing a line.
  std::chrono::milliseconds quiet{2000};
  // Called when the process ends by itself, with how it ended ("exited with 0"); from the
  // searcher's thread.
  std::function<void(const std::string& how)> on_end = {};
};

// Threads: any; a thread of its own starts the process and waits for it.
class IdleSearcher {
 public:
  explicit IdleSearcher(IdleSearcherOptions options);
  ~IdleSearcher();  // ends the search

  // As in IdleWatch. Sent returns after it has sent the kill signal, which takes microseconds; the
  // processors are free at most some milliseconds later.
  void Sent(const std::string& session, uint64_t seq);
  void Applied(const std::string& session, uint64_t through_seq);
  void Ended(const std::string& session);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
