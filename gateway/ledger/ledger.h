// The ledger: double-entry, append-only, idempotent, hash-chained, in one SQLite file.
//
// An *entry* is two or more *lines* (account, signed amount) that sum to zero. A line's amount adds
// to the account's balance; a tenant's balance is what the operator owes the tenant, so credit is
// positive and use makes it smaller.
//     use       tenant -a, revenue +a        from the meter, for each (lease, device, range)
//     transfer  any lines that sum to zero   credit (tenant +a, payments -a), a refund, ...
//
// Invariants (the numbers are quoted by the tests; Verify checks all but L8):
//   L1  the lines of each entry sum to zero
//   L2  an idempotency key has at most one entry, and a second post of it with another body is
//       refused
//   L3  the ranges of a leased device, in milliseconds, start at 0, touch, and never overlap: a
//       millisecond is charged once or not at all; tenant, price, grant time and state are the same
//       in all of them
//   L4  the amount of a use entry is ChargeAfter(to) - ChargeAfter(from)
//   L5  entries are numbered 1, 2, 3 ... without gaps; entry n holds hash n = SHA-256(domain,
//       hash n-1, n, stamp, SHA-256(body)), and the head row holds the last number and hash
//   L6  an account's stored balance is the sum of its lines
//   L7  stamps never go back, even if the wall clock does
//   L8  an acknowledged Post is on disk; any other is on disk whole or not at all
//   L9  the stored use of a use entry is the sum over the use entries up to it: of all, of its
//       tenant and of its session; time is that of devices, so what is parked or stored adds none
//   L10 a charge is at most what is held for its lease (holds.h); a hold costs what its range does;
//       what a budget holds is the sum of its holds; a hold is on the cap of its lease's key
//
// Threads: any; a mutex serialises all methods. Calls block on the disk, and up to kBusyTimeoutMs
// on another process that writes: keep them off threads that serve streams. Any number of processes
// may open the file at once (SQLite's WAL).
//
// Errors of every call:
//     RESOURCE_EXHAUSTED  the disk is full; nothing was written, later posts may succeed
//     DATA_LOSS           the file is damaged, or not one of this program
//     UNAVAILABLE         the file is locked for too long, or an I/O error
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/ledger/holds.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/meter.h"
#include "gateway/ledger/money.h"
#include "gateway/ledger/usage.h"
#include "storage/sqlite.h"
#include "storage/table_owner.h"

namespace outboard::gateway {

// An account by name: "revenue", "payments", "adjustments" or "tenant:<id>".
struct LedgerAccount {
  std::string name;
  static LedgerAccount Tenant(TenantId id);
  static LedgerAccount Revenue() { return {"revenue"}; }
  static LedgerAccount Payments() { return {"payments"}; }
  bool operator==(const LedgerAccount&) const = default;
};

// One side of a transfer: `amount` is added to the account's balance.
struct LedgerLine {
  LedgerAccount account;
  MicroUsd amount;
  bool operator==(const LedgerLine&) const = default;
};

struct Transfer {
  std::string key;   // the caller's idempotency key, 1 .. kNameBytesMax bytes
  std::string memo;  // for people, at most kMemoBytesMax bytes
  std::vector<LedgerLine> lines;
};

// The number of an entry. Posting an entry again returns the number of its first post.
struct Posting {
  int64_t number = 0;
  bool replayed = false;
};

struct StatementRow {
  int64_t number = 0;
  WallTime at;
  std::string key;
  std::string memo;
  std::optional<LeasedDevice> device;  // of a use entry, with its milliseconds
  int64_t from_ms = 0;
  int64_t to_ms = 0;
  MicroUsd amount;  // of this account's line
};

// Entries posted at or after `since` with numbers up to `last`. Entries never change, so sums over
// a range whose `last` was posted are the same at any time.
struct EntryRange {
  WallTime since{INT64_MIN};
  int64_t last = INT64_MAX;
};

// What became of an account's charges in Ledger::PostEach.
struct AccountPosting {
  TenantId tenant;
  absl::Status status;
};

// What the chain of an account's own entries is made of (wire/proof/signed_head.h).
struct ChainLink {
  int64_t number = 0;
  WallTime at;
  std::string body_hash;  // 32 bytes
};
struct ChainLinks {
  std::vector<ChainLink> links;
  int64_t last_entry = 0;   // of the ledger, at the same moment
  std::string ledger_hash;  // its hash
};

// An entry as it was posted, with everything that its hash covers (gateway/ledger/entry.h).
struct PostedEntry;

struct VerifyReport {
  int64_t entries = 0;
  int64_t lines = 0;
  int64_t archived = 0;   // of the entries, those that are in files of their months
  std::string head_hash;  // hex; equal heads mean equal histories
};

class MonthFiles;

class Ledger : public storage::TableOwner {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const std::string& path,
                                                      const storage::OpenOptions& options = {});

  // Posts all charges in one transaction: all of them or, on any error, none. `now` stamps them.
  // Idempotent: posting the same charges again returns the same numbers.
  // Errors:
  //     INVALID_ARGUMENT     a charge that breaks L4, an empty range, more than kChargesPerPostMax
  //                          charges
  //     ALREADY_EXISTS       some of this time is charged already, by another range or with another
  //                          body
  //     FAILED_PRECONDITION  time before it is not charged yet (a gap), or the tenant, price,
  //                          grant time or state differs from that of the time before, or it is not
  //                          held
  //     OUT_OF_RANGE         a balance would pass kAmountMaxMicroUsd
  absl::StatusOr<std::vector<Posting>> Post(std::span<const Charge> charges, WallTime now);

  // Posts the charges of each account in a transaction of its own, within one that reaches the disk
  // once: what is refused of one account leaves the others' posted. Returns the accounts in order
  // of their first charge, with an error of Post's. An error of every call: nothing was posted.
  absl::StatusOr<std::vector<AccountPosting>> PostEach(std::span<const Charge> charges,
                                                       WallTime now);

  // Holds what the lease costs up to request.to_ms, or as much of it as the limits leave.
  // Idempotent. `credit_limit` is of accounts that have none of their own.
  // Errors: INVALID_ARGUMENT     no device or price, a range out of bounds, other devices or
  //                              another tenant than before
  //         FAILED_PRECONDITION  it costs more than the books can hold
  absl::StatusOr<HoldAnswer> Hold(const HoldRequest& request,
                                  MicroUsd credit_limit = kNoCreditLimit);
  // Gives back what is still held for the lease. Idempotent.
  absl::Status EndHold(const LeaseId& lease);
  // The same of all leases; returns how many sessions had a hold. Call when the only gateway
  // starts: no lease runs then.
  absl::StatusOr<int64_t> EndAllHolds();

  // Bounds what is charged from now on; nothing: no bound. Holds count against it at once.
  // INVALID_ARGUMENT: a cap that is not positive. OUT_OF_RANGE: beyond kAmountMaxMicroUsd.
  absl::Status SetCap(BudgetScope scope, std::string_view name, std::optional<MicroUsd> cap);
  // How far below zero the account's balance may go; nothing: the gateway's default. Errors: as
  // SetCap, for a limit below zero.
  absl::Status SetCreditLimit(TenantId tenant, std::optional<MicroUsd> limit);
  // `name`: of a key or session its id; of an account its number.
  absl::StatusOr<SpendBudget> BudgetOf(BudgetScope scope, std::string_view name);
  absl::StatusOr<SpendBudget> BudgetOf(TenantId tenant);

  // Posts any lines that sum to zero. Idempotent by the transfer's key.
  // Errors:
  //     INVALID_ARGUMENT  lines do not sum to zero, fewer than two or more than kLinesPerEntryMax
  //                       of them, an account named twice or unknown, a key or memo too long
  //     ALREADY_EXISTS    the key was used with another body
  //     OUT_OF_RANGE      a balance would pass kAmountMaxMicroUsd
  absl::StatusOr<Posting> PostTransfer(const Transfer& transfer, WallTime now);

  // Transfers `amount` > 0 from payments to the tenant. Errors: as PostTransfer.
  absl::StatusOr<Posting> Credit(TenantId tenant, MicroUsd amount, std::string_view key,
                                 WallTime now);

  // Returns zero for an account without entries.
  absl::StatusOr<MicroUsd> Balance(const LedgerAccount& account);
  absl::StatusOr<MicroUsd> Balance(TenantId tenant) {
    return Balance(LedgerAccount::Tenant(tenant));
  }

  // Returns the rows of `account` with numbers above `after`, oldest first, at most `limit` (<=
  // kStatementRowsMax).
  absl::StatusOr<std::vector<StatementRow>> StatementOf(const LedgerAccount& account,
                                                        int64_t after = 0, int64_t limit = 100);

  // Returns what the use entries within `entries` charged: to a tenant, to all, for a session.
  // Zeros if there are none. O(log entries), whatever the range.
  absl::StatusOr<Usage> UsageOf(TenantId tenant, const EntryRange& entries = {});
  absl::StatusOr<Usage> UsageOfAll(const EntryRange& entries = {});
  absl::StatusOr<Usage> UsageOfSession(const SessionId& session, const EntryRange& entries = {});
  // The same for each of `sessions`, in their order.
  absl::StatusOr<std::vector<Usage>> UsageOfSessions(std::span<const SessionId> sessions,
                                                     const EntryRange& entries = {});

  // Returns what each tenant used of late: device-seconds, of which those that were charged a
  // half-life before `now` count half, and so on; those of more than kRecentHalfLives before, not.
  static constexpr int kRecentHalfLives = 8;
  absl::StatusOr<std::map<TenantId, double>> RecentUse(WallTime now, double half_life_s);

  // Returns the number of the last entry; 0 if there is none.
  absl::StatusOr<int64_t> LastEntry();

  // Returns the links of the entries in which the account has a line, with numbers above `after`,
  // oldest first, at most `limit`; and the head of the ledger. Fewer than `limit`: these are all.
  absl::StatusOr<ChainLinks> LinksOf(TenantId tenant, int64_t after, int64_t limit);
  // Returns the same entries in full. At most kStatementRowsMax.
  absl::StatusOr<std::vector<PostedEntry>> EntriesOf(TenantId tenant, int64_t after, int64_t limit);
  // Returns the hash of entry `number`; of 0: 32 zero bytes. NOT_FOUND: there is no such entry.
  absl::StatusOr<std::string> HashOfEntry(int64_t number);

  // Moves what the entries of a closed month say into its file beside this one
  // (gateway/ledger/ledger_archive.h): those of leases whose last charge was in that month.
  // Number, stamp and hashes of each stay, so that the chain, the heads that were signed, usage
  // and balances are what they were; EntriesOf reads the file, StatementOf does not. Idempotent;
  // may be broken off anywhere. Returns how many entries moved.
  // Errors: INVALID_ARGUMENT     not a month like "2026-10"
  //         FAILED_PRECONDITION  it is not over at `now`
  //         DATA_LOSS            its file holds something else; nothing moves then
  absl::StatusOr<int64_t> ArchiveMonth(std::string_view month, WallTime now);

  // Reads everything and checks L1 to L7, L9 and L10. DATA_LOSS names the first entry or account
  // that breaks one of them. Never repairs anything. O(entries); holds the file's snapshot, not its
  // lock, so others may post meanwhile.
  absl::StatusOr<VerifyReport> Verify();

 private:
  Ledger(std::unique_ptr<storage::Database> db, std::string folder, std::string file)
      : TableOwner(std::move(db)), folder_(std::move(folder)), file_(std::move(file)) {}
  absl::Status Move(MonthFiles& files, const std::string& month,
                    const std::vector<int64_t>& numbers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;  // where the file is, and those of months
  const std::string file_;    // empty: in memory
};

}  // namespace outboard::gateway
