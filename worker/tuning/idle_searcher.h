// Runs the search process (search_main.h) while the worker is idle, and kills it as soon as a
// session is sent something: what it was measuring is lost, and nobody waits for it.
//
// It is no session's: it holds no lease, no frame of it reaches the gateway, and it neither keeps a
// device from being released nor is billed.
//
//   waiting --idle, and work was done since--> searching --its end: nothing is left--> waiting
//                                               +--Sent: killed--> waiting
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace outboard::worker {

struct IdleSearcherOptions {
  std::vector<std::string> command;  // of the search process
  // Between the last answer and the search: longer than what a training loop does between two
  // steps, such as reading a batch or writing a line.
  std::chrono::milliseconds quiet{2000};
  // Told how a process that we did not end has ended ("exited with 0"); of its own thread.
  std::function<void(const std::string& how)> on_end = {};
};

// Threads: any; a thread of its own starts the process and waits for it.
class IdleSearcher {
 public:
  explicit IdleSearcher(IdleSearcherOptions options);
  ~IdleSearcher();  // ends the search

  // As IdleWatch has them. Sent returns when the search process is told to end, which takes
  // microseconds; its processors are free some milliseconds later at most.
  void Sent(const std::string& session, uint64_t seq);
  void Applied(const std::string& session, uint64_t through_seq);
  void Ended(const std::string& session);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
