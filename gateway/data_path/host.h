// What CoreDriver needs of the process that it runs in: time, randomness, other threads
// (DriverHost), rows and postings on a disk (WriteQueue), and keys (ClientAuth). The gateway's
// process implements them with clocks, a thread pool and the accounts file; the simulator with
// virtual time and maps.
//
// Threads: any. No function that is handed over runs within the call that hands it over: the
// driver's lock is held there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/core/events.h"

namespace outboard::gateway {

struct Identity;
struct LeaseRow;
struct SessionRow;

class DriverHost {
 public:
  virtual ~DriverHost() = default;
  virtual MonoTime Now() = 0;
  virtual WallTime WallNow() = 0;
  virtual Token DrawToken() = 0;  // 128 bits that nobody can guess
  // Runs `job` on another thread, or later: it may wait for the disk, hash or verify.
  virtual void Post(std::function<void()> job) = 0;
};

// Writes in the order in which it is told, later.
class WriteQueue {
 public:
  virtual ~WriteQueue() = default;
  virtual void Post(std::vector<Charge> charges) = 0;
  virtual void Write(SessionRow row) = 0;
  virtual void Grant(LeaseRow row) = 0;
  virtual void EndLease(LeaseId lease, std::string why) = 0;
  // Runs `job` when everything before it is on disk. Not OK: the gateway stops, and some never will
  // be.
  virtual void Then(std::function<void(absl::Status)> job) = 0;
  // As Then; while there is trouble, at once.
  virtual void ThenOrAtOnce(std::function<void()> job) = 0;
  // Why the last attempt to write failed and is tried again; OK while all is well.
  virtual absl::Status trouble() const = 0;
};

// Both read the disk: on a thread that may wait.
class ClientAuth {
 public:
  virtual ~ClientAuth() = default;
  virtual absl::StatusOr<Identity> Client(const std::string& bearer) = 0;  // UNAUTHENTICATED
  virtual absl::Status Check(const std::string& key_id) = 0;  // OK while the key stands
};

}  // namespace outboard::gateway
