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
#include <memory>
#include <string>
#include <vector>

namespace outboard::worker {

struct IdleSearcherOptions {
  std::vector<std::string> command;  // of the search process
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
