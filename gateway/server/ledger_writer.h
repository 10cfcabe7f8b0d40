// Writes the accounts file on one thread: postings, session and lease rows, in the order of the
// calls, so that neither gRPC's threads nor the driver's lock ever wait for the disk.
//
// Writes that come together wait for the disk once: before anybody is told (Then, ThenOrAtOnce, a
// signed head), or when none is left (docs/decisions/159-one-sync-for-many-writes.md). What the
// driver queues for one event is corked: to open a session waits once, for its lease and its row.
//
// A posting that cannot be written (disk full, file locked) is retried every second, and all later
// writes wait for it: the ledger never skips a millisecond. One that the ledger refuses is of one
// account: it is logged and counted, that account's leases stop, and the others' are posted. A
// retry is safe even if the first attempt succeeded, since postings are idempotent. Meanwhile
// trouble() is not OK, and the gateway opens no new sessions; the queue grows only by a posting
// every few seconds per running session.
//
// A write that finds no memory is retried, too. Anything else that a write throws, or whoever is
// told of it, ends this gateway in order (OnGivenUp): to leave the write out would lose money, and
// who is not told would wait for ever.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "gateway/accounts/session_rows.h"
#include "gateway/data_path/host.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/usage.h"

namespace outboard::gateway {

class HeadSigner;
class ReceiptRows;

class LedgerWriter final : public WriteQueue {
 public:
  // `credit_limit`: of accounts that have none of their own. `heads`, null or outliving the writer,
  // signs the ledger's head for each account that was written to. `receipts`, likewise: without it
  // none is kept.
  // `sync` makes durable what was written so far (storage::SyncLog); null: each write is.
  LedgerWriter(Ledger* ledger, SessionRows* rows, MicroUsd credit_limit = kNoCreditLimit,
               HeadSigner* heads = nullptr, ReceiptRows* receipts = nullptr,
               std::function<absl::Status()> sync = nullptr);
  ~LedgerWriter() override;  // as Stop

  void Cork() override;
  void Uncork() override;
  void Post(std::vector<Charge> charges, Refused refused) override;
  void Hold(HoldRequest request, std::function<void(HoldAnswer)> then) override;
  void EndHold(LeaseId lease) override;
  void Write(SessionRow row) override;
  void Grant(LeaseRow row) override;
  void EndLease(LeaseId lease, LeaseEnd why) override;
  void KeepReceipts(std::vector<proto::Receipt> receipts, ReceiptRefused refused) override;
  void OnNotWritten(NotWritten then) override;
  void Then(std::function<void(absl::Status)> job) override;
  void ThenOrAtOnce(std::function<void()> job) override;
  // Calls `given_up`, once, when a write fails because another gateway has taken the data folder
  // (IsReplaced, gateway/accounts/folder_turn.h), when `sync` fails, or when something is thrown
  // that is no lack of memory: what was written may be lost then, and only a process that starts
  // anew reads what is there. Nothing is written from then on, and trouble() stays.
  void OnGivenUp(std::function<void(const absl::Status& why)> given_up);
  absl::Status trouble() const override;  // UNAVAILABLE, RESOURCE_EXHAUSTED; or SetAudit's
  // What the last audit found. An error: trouble() is that, so that the gateway opens no session;
  // what runs is billed and ends as before.
  void SetAudit(absl::Status audit);
  // For people who watch the gateway.
  struct Figures {
    size_t queued = 0;
    bool blocked = false;
    bool audit_failed = false;
    std::map<int64_t, Usage> charged;  // by tenant, since the start
  };
  Figures figures() const;
  // Writes what is queued, within reason, and ends the thread.
  void Stop();

 private:
  struct Job {
    std::function<absl::Status()> write;  // exactly one of these three is set
    std::function<void(absl::Status)> then;
    std::function<void()> goodbye;
    bool must_last = true;  // a write that means something to the gateway after this one
  };
  void Add(Job job);
  bool stopping() const;
  void Work();
  void WriteJobs();
  void SayGoodbyes(std::unique_lock<std::mutex>& lock);
  void SetTrouble(absl::Status status);
  void GiveUp(std::unique_lock<std::mutex>& lock, const absl::Status& why);
  absl::Status PostEach(const std::vector<Charge>& charges, const Refused& refused);
  absl::Status OrTell(SessionId session, absl::Status written);
  void Sync();
  void SignHead(TenantId tenant);
  void CountPosted(const std::vector<Charge>& charges, const std::set<TenantId>& but);

  Ledger* const ledger_;
  SessionRows* const rows_;
  const MicroUsd credit_limit_;
  HeadSigner* const heads_;
  ReceiptRows* const receipts_;
  const std::function<absl::Status()> sync_;
  // Of the thread alone.
  bool is_unsynced_ = true;  // at first: what was written before it began
  bool is_over_ = false;     // nothing is written any more
  std::set<TenantId> heads_due_;  // of what was written since the last Sync
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Job> jobs_;  // lists: to move jobs takes no memory
  int corks_ = 0;
  std::list<Job> corked_;  // behind all of jobs_, once there is no cork
  absl::Status trouble_, given_up_, audit_;
  std::map<int64_t, Usage> charged_;
  std::function<void(const absl::Status&)> on_given_up_;  // null once called
  NotWritten not_written_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
