// One thread for the accounts file: postings, session and lease rows, in the order in which they
// were handed over, so that neither gRPC's threads nor the hub's lock ever wait for the disk.
//
// A posting that cannot be written (disk full, file locked) is kept and tried again every second,
// and what comes after waits behind it: the books never skip a second. The ledger's own idempotency
// makes a doubtful one safe to repeat.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "gateway/accounts/session_rows.h"
#include "gateway/ledger/ledger.h"

namespace outboard::gateway {

class Bookkeeper {
 public:
  Bookkeeper(Ledger* ledger, SessionRows* rows);
  ~Bookkeeper();  // as Stop

  void Post(std::vector<Charge> charges);
  void Write(SessionRow row);
  void Grant(LeaseRow row);
  void EndLease(LeaseId lease, std::string why);
  // Runs `job` when everything before it is on disk.
  void Then(std::function<void()> job);
  // Writes what is queued, within reason, and ends the thread.
  void Stop();

 private:
  using Job = std::function<absl::Status()>;
  void Add(Job job);
  void Work();

  Ledger* const ledger_;
  SessionRows* const rows_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
