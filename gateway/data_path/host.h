// Interfaces that the process around CoreDriver implements: time, randomness and other threads
// (DriverHost), writing rows and postings to disk (WriteQueue), and checking keys (ClientAuth). The
// gateway's process implements them with clocks, a thread pool and the accounts file; the simulator
// with virtual time and maps.
//
// Threads: any. A callback never runs within the call that takes it: the driver holds its lock
// there.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/core/events.h"

namespace outboard::proto {
class Receipt;
}  // namespace outboard::proto

namespace outboard::gateway {

struct Admitted;
struct LeaseRow;
struct SessionRow;

class DriverHost {
 public:
  virtual ~DriverHost() = default;
  virtual MonoTime Now() = 0;
  virtual WallTime WallNow() = 0;
  virtual Token DrawToken() = 0;  // 128 unpredictable bits
  // Runs `job` on another thread, or later. It may wait for the disk, hash or verify.
  virtual void Post(std::function<void()> job) = 0;
  // The same, for an account: jobs of different accounts take turns.
  virtual void PostFor(TenantId, std::function<void()> job) { Post(std::move(job)); }
  // The same, for a job that looks at keys: it waits for no account's work.
  virtual void PostKeys(std::function<void()> job) { Post(std::move(job)); }
  // A frame of the account's session passes that nothing must be looked up for, such as a step.
  virtual void FramePasses(TenantId) {}
  // The driver met an exception halfway through an event, and takes no more of them: the process
  // should end, as if it had crashed there, once what is queued is on disk. Called once, under the
  // driver's lock. By default it ends at once.
  virtual void GiveUp(const absl::Status& why);
  // True if the receipt is one that a worker writes, and has that worker's signature
  // (wire/proof/receipt.h). A simulator knows what its workers signed.
  virtual bool IsSigned(const proto::Receipt& receipt);
};

// Queues writes and performs them later, in order.
class WriteQueue {
 public:
  virtual ~WriteQueue() = default;
  // What is queued between Cork and the Uncork that belongs to it is taken in as one: all writes
  // first, in order, and then the jobs of Then and ThenOrAtOnce, which so wait for the disk once.
  // May be nested; then the last Uncork counts.
  virtual void Cork() {}
  virtual void Uncork() {}
  // Calls `refused`, later, for each account whose charges the ledger refuses; those of others are
  // posted.
  using Refused = std::function<void(TenantId, const absl::Status&)>;
  virtual void Post(std::vector<Charge> charges, Refused refused) = 0;
  // Calls `then` once the hold is on disk, or refused.
  virtual void Hold(HoldRequest request, std::function<void(HoldAnswer)> then) = 0;
  virtual void EndHold(LeaseId lease) = 0;
  virtual void Write(SessionRow row) = 0;
  virtual void Grant(LeaseRow row) = 0;
  virtual void EndLease(LeaseId lease, LeaseEnd why) = 0;
  // Calls `then`, later and as often as it happens, for a session whose row, or lease, will never
  // be on disk: writing it failed for good.
  using NotWritten = std::function<void(SessionId, const absl::Status& why)>;
  virtual void OnNotWritten(NotWritten) {}
  // Keeps receipts of workers, whose signatures have been checked; calls `refused`, later, for each
  // one that contradicts what is kept, or is not its worker's to write.
  using ReceiptRefused = std::function<void(const proto::Receipt&, const absl::Status&)>;
  virtual void KeepReceipts(std::vector<proto::Receipt>, ReceiptRefused) {}
  // Runs `job` when all earlier writes are on disk. With an error: the gateway stops before all
  // writes were made.
  virtual void Then(std::function<void(absl::Status)> job) = 0;
  // As Then; runs `job` at once while trouble() is an error.
  virtual void ThenOrAtOnce(std::function<void()> job) = 0;
  // Returns the error of the last write attempt, which is being retried; OK if it succeeded.
  virtual absl::Status trouble() const = 0;
};

// What a client's call presents.
struct Credentials {
  std::string key;   // from "authorization: Bearer <key>"; empty: none
  std::string peer;  // where it comes from, as gRPC names it: "ipv4:10.0.0.1:6667"
  // What a proxy says (gateway/tls/trusted_proxy.h); empty: nothing.
  std::string proxy_secret = {}, proxy_address = {};
  std::string request_id = {};  // of the call, for the log (gateway/observe/call_record.h)
  // True once the caller has hung up; null: not known. May be called until the call is answered.
  std::function<bool()> has_hung_up = nullptr;
};

// Checks API keys.
class ClientAuth {
 public:
  virtual ~ClientAuth() = default;
  // Authenticates a client that wants a session. Calls `then` once, later or on another thread.
  // Errors: UNAUTHENTICATED    no key, or one that does not stand or is not for this peer
  //         PERMISSION_DENIED  the key may not run sessions, or its account is suspended
  //         UNAVAILABLE        the account has too many streams, or the peer too many wrong keys
  virtual void Admit(const Credentials& credentials,
                     std::function<void(absl::StatusOr<Admitted>)> then) = 0;
  // UNAVAILABLE: the account opens and resumes too many sessions a minute.
  virtual absl::Status MayOpen(TenantId) { return absl::OkStatus(); }
  // Calls `answer`, which refuses an opening, when that has waited for a while.
  virtual void RefuseOpeningLater(std::function<void()> answer) { answer(); }
  // Where the caller is, for the log: behind a proxy that is trusted, what that says.
  virtual std::string PeerOf(const Credentials& credentials) const { return credentials.peer; }
  // OK while the key stands; the first two of the errors above. Reads the disk.
  virtual absl::Status Check(const std::string& key_id) = 0;
};

}  // namespace outboard::gateway
