// Rows of sessions and leases, written when a session is opened and at each epoch, so that a
// gateway which starts again knows what its predecessor had promised. Routing only: no tensors, no
// steps, no money; and of tokens only hashes, so that who reads the file cannot take a session
// over.
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
#include "gateway/base/session_row_state.h"
#include "gateway/ledger/ids.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

struct SessionRow {
  SessionId session;
  TenantId tenant;
  uint64_t epoch = 0;  // < 2^63
  std::string worker;  // name or number of the worker that holds the state; may be empty
  SessionRowState state = SessionRowState::kOpen;
  WallTime opened_at;
  std::optional<WallTime> closed_at;  // set exactly in kClosed and kLost
  std::string resume_hash;  // of the client's token; empty: it cannot come back to another gateway
  std::string attach_hash;  // of the executor's, with which it may; empty: none has attached
  uint32_t devices = 1;
  bool recoverable = false;   // the client keeps what no snapshot holds
  std::string snapshot_root;  // of the last; empty: none yet
  uint64_t snapshot_seq = 0;  // what that holds
  bool operator==(const SessionRow&) const = default;
};

// A session that a gateway takes over from the one before it.
struct TakenOver {
  SessionRow row;
  uint64_t last_grant = 0;
};

struct LeaseRow {
  LeaseId lease;
  TenantId tenant;
  uint32_t devices = 0;
  std::string worker;
  WallTime granted_at;
  std::optional<WallTime> released_at;
  std::string end;  // why it ended, a word: "closed", "idle", "worker lost"; empty while it runs
  bool operator==(const LeaseRow&) const = default;
};

class SessionRows {
 public:
  static absl::StatusOr<std::unique_ptr<SessionRows>> Open(
      const std::string& path, const storage::OpenOptions& options = {});

  // Inserts, or replaces all but tenant, opened_at and resume_hash, which stay as first written.
  // Errors:
  //     INVALID_ARGUMENT     a tenant that is not positive, a long name, or a closed_at that does
  //                          not go with the state
  //     FAILED_PRECONDITION  the row is closed or lost, or of another tenant
  //     ABORTED              the row has a higher epoch: somebody else owns the session by now
  absl::Status Put(const SessionRow& row);
  absl::StatusOr<SessionRow> Get(const SessionId& session);  // NOT_FOUND
  // kOpen and kDetached, by opened_at.
  absl::StatusOr<std::vector<SessionRow>> ListLive();
  // At start-up of the only gateway. Leases of its predecessor end as "gateway restarted".
  // Live sessions whose client can come back stay so and are returned, by opened_at; the others are
  // lost.
  absl::StatusOr<std::vector<TakenOver>> TakeOver(WallTime now);
  // Likewise where executors have ended with the gateway: all are lost. Returns these.
  absl::StatusOr<std::vector<SessionRow>> LoseAllLive(WallTime now);

  // The number for the session's next lease (1, 2, ...), reserved by writing the row.
  // LeaseRow::lease.grant is ignored and the number is returned.
  absl::StatusOr<uint64_t> GrantLease(const LeaseRow& row);
  // Idempotent; the first end stays. NOT_FOUND: no such lease.
  absl::Status EndLease(const LeaseId& lease, std::string_view why, WallTime now);
  absl::StatusOr<std::vector<LeaseRow>> LeasesOf(const SessionId& session);  // in order

 private:
  absl::Status EndLeases(WallTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<SessionRow>> ReadLive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  explicit SessionRows(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
