// Rows of sessions and leases, written when a session is opened and at each epoch, so that a
// restarted gateway can continue the sessions of its predecessor. Routing only: no tensors, no
// steps, no money. Tokens are stored as hashes, so a reader of the file cannot take a session over.
//
// Threads and errors: as Accounts; the same file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/base/lease_end.h"
#include "gateway/base/session_row_state.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/money.h"
#include "gateway/ledger/use_state.h"
#include "storage/sqlite.h"
#include "storage/table_owner.h"

namespace outboard::gateway {

struct SessionRow {
  SessionId session;
  TenantId tenant;
  uint64_t epoch = 0;  // < 2^63
  std::string worker;  // name or number of the worker that holds the state; may be empty
  SessionRowState state = SessionRowState::kOpen;
  WallTime opened_at;
  std::optional<WallTime> closed_at;  // set exactly in kClosed and kLost
  std::string resume_hash;  // of the client's token; empty: cannot resume at another gateway
  std::string attach_hash;  // of the executor's attach token; empty: none has attached
  uint32_t devices = 1;
  bool recoverable = false;   // the client buffers the items that no snapshot holds
  std::string snapshot_root;  // of the last snapshot; empty: none yet
  uint64_t snapshot_seq = 0;  // the last item that this snapshot holds
  std::optional<MicroUsd> price_per_hour = {};  // of each device, since its first lease
  std::string name = {};  // that its program gave it; empty: none
  std::string price_class = {};                 // whose prices these are; empty: the gateway's
  IdlePrices idle_prices = {};
  std::string group_state = {};  // of one on several devices: a GroupState (proto/groups.proto)
  bool operator==(const SessionRow&) const = default;
};

// A session that a gateway takes over from the one before it.
struct TakenOver {
  SessionRow row;
  uint64_t last_grant = 0;
  std::string last_key;  // the key that its last lease was for; empty: none
};

struct LeaseRow {
  LeaseId lease;
  TenantId tenant;
  uint32_t devices = 0;
  std::string worker;
  WallTime granted_at;
  std::optional<WallTime> released_at;
  std::string end;  // NameOf(LeaseEnd); empty while it runs
  UseState use = UseState::kRun;
  std::string key_id = {};       // of the client's key; empty: none
  std::string price_class = {};  // as of the session's row
  // Of each device, by its place in the session; in rows of their own
  // (gateway/proof/receipt_rows.h).
  std::vector<std::string> physical_devices = {};
  bool operator==(const LeaseRow&) const = default;
};

// When a session began, and how long it held devices (HoldsDevice of gateway/ledger/use_state.h),
// by the wall clock.
struct SessionTimes {
  SessionId session;
  TenantId tenant;
  WallTime opened_at;
  bool ended = false;
  uint32_t devices = 0;      // the most that it held at once; 0: it never held any
  int64_t held_ms = 0;       // over the leases whose end is known
  bool end_unknown = false;  // of some lease: it may still run, or a gateway was killed meanwhile
  bool operator==(const SessionTimes&) const = default;
};

// A place in the order of SessionTimes: just behind this session.
struct SessionPlace {
  WallTime opened_at{INT64_MIN};
  SessionId session;
};

// Which sessions to list: those that had not ended at `since`, after a place in the order.
struct SessionTimesQuery {
  std::optional<TenantId> tenant;  // nothing: of all
  WallTime since{INT64_MIN};       // time before it is not counted
  std::optional<WallTime> now;     // leases that were not ended run until now; nothing: who knows
  SessionPlace after;
  size_t limit = 0;
};

struct SessionTimesPage {
  std::vector<SessionTimes> sessions;  // at most `limit`; perhaps none, though others come later
  std::optional<SessionPlace> next;    // where the next page begins; nothing: this is the last
};

// Sessions that one call of ListTimes looks at: it passes over those that ended before `since`.
// Their entries of the index are some 3 ms of reading.
inline constexpr int64_t kSessionsReadMax = 10'000;

class SessionRows : public storage::TableOwner {
 public:
  static absl::StatusOr<std::unique_ptr<SessionRows>> Open(
      const std::string& path, const storage::OpenOptions& options = {});

  // Inserts the row, or replaces all of it but tenant, name and opened_at, which stay as first
  // written.
  // Errors:
  //     INVALID_ARGUMENT     a tenant that is not positive, a long name, or a closed_at that does
  //                          not match the state
  //     FAILED_PRECONDITION  the row is closed or lost, or of another tenant
  //     ABORTED              the row has a higher epoch: another gateway owns the session by now
  absl::Status Put(const SessionRow& row);
  absl::StatusOr<SessionRow> Get(const SessionId& session);  // NOT_FOUND
  // Returns the rows in kOpen and kDetached, by opened_at.
  absl::StatusOr<std::vector<SessionRow>> ListLive();
  // Call once when the only gateway starts. Ends the predecessor's leases (kGatewayRestarted).
  // Returns the live sessions whose client can resume, by opened_at; marks the others as lost.
  absl::StatusOr<std::vector<TakenOver>> TakeOver(WallTime now);
  // As TakeOver for executors that ended with the gateway: marks all live sessions as lost and
  // returns them. `but_named`: not those with a name that can begin again from a snapshot.
  absl::StatusOr<std::vector<SessionRow>> LoseAllLive(WallTime now, bool but_named = false);

  // Returns the number of the session's next lease (1, 2, ...), reserved by writing the row.
  // Ignores the grant in `row.lease`.
  absl::StatusOr<uint64_t> GrantLease(const LeaseRow& row);
  // Idempotent: keeps the first end. NOT_FOUND: no such lease.
  absl::Status EndLease(const LeaseId& lease, LeaseEnd why, WallTime now);
  absl::StatusOr<std::vector<LeaseRow>> LeasesOf(const SessionId& session);  // in order

  // Returns sessions by (opened_at, session), also those that never held a device. Reads at most
  // kSessionsReadMax sessions, and the leases of those that it returns.
  absl::StatusOr<SessionTimesPage> ListTimes(const SessionTimesQuery& query);

 private:
  absl::Status EndLeases(WallTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<SessionRow>> ReadLive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddHeldTimes(const SessionTimesQuery& query, std::vector<SessionTimes>& sessions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  explicit SessionRows(std::unique_ptr<storage::Database> db) : TableOwner(std::move(db)) {}
};

}  // namespace outboard::gateway
