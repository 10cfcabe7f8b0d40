// Usage: differences of the sums that are stored with each use entry.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/ledger.h"

namespace outboard::gateway {

using storage::Database;
using storage::Statement;

namespace {

absl::StatusOr<int64_t> HeadNumber(Database& db) {
  OB_ASSIGN_OR_RETURN(Statement query, db.Prepare("SELECT number FROM ledger_head WHERE id = 1"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return absl::DataLossError("ledger: there is no head");
  return query.Int(0);
}

// Returns the number of the last entry stamped before `time`; 0 if there is none. Searches by
// halves, since numbers have no gaps (L5) and stamps never go back (L7).
absl::StatusOr<int64_t> LastEntryBefore(Database& db, WallTime time) {
  if (time.unix_ms == INT64_MIN) return 0;
  OB_ASSIGN_OR_RETURN(Statement stamp,
                      db.Prepare("SELECT at_ms FROM ledger_entry WHERE number = ?"));
  OB_ASSIGN_OR_RETURN(const int64_t head, HeadNumber(db));
  int64_t before = 0, after = head + 1;  // the last entry before `time` is in [before, after)
  while (after - before > 1) {
    const int64_t middle = before + (after - before) / 2;
    stamp.Reset();
    OB_ASSIGN_OR_RETURN(const bool found, stamp.Bind(1, middle).Step());
    if (!found) return absl::DataLossError(absl::StrCat("ledger: entry ", middle, " is missing"));
    (stamp.Int(0) < time.unix_ms ? before : after) = middle;
  }
  return before;
}

// Sums of use over a range of entries: the stored sum at its end less the one ahead of it (L9).
class UseSums {
 public:
  enum class Of { kAll, kTenant, kSession };
  static absl::StatusOr<UseSums> Create(Database& db, Of of, const EntryRange& entries) {
    OB_ASSIGN_OR_RETURN(const int64_t ahead, LastEntryBefore(db, entries.since));
    OB_ASSIGN_OR_RETURN(Statement query, db.Prepare(SqlFor(of)));
    return UseSums(std::move(query), ahead, entries.last);
  }

  // `bind` names the tenant or the session, as parameter 2.
  template <typename Bind>
  absl::StatusOr<Usage> Sum(const Bind& bind) {
    OB_ASSIGN_OR_RETURN(const Usage sum, UpTo(last_, bind));
    if (ahead_ == 0) return sum;
    OB_ASSIGN_OR_RETURN(const Usage ahead, UpTo(std::min(ahead_, last_), bind));
    return Usage{.device_ms = sum.device_ms - ahead.device_ms,
                 .amount = MicroUsd{sum.amount.value - ahead.amount.value}};
  }

 private:
  UseSums(Statement query, int64_t ahead, int64_t last)
      : query_(std::move(query)), ahead_(ahead), last_(last) {}

  static const char* SqlFor(Of of) {
    switch (of) {
      case Of::kAll:
        return "SELECT ms, amount FROM ledger_use WHERE entry <= ?1 "
               "ORDER BY entry DESC LIMIT 1";
      case Of::kTenant:
        return "SELECT tenant_ms, tenant_amount FROM ledger_use "
               "WHERE tenant = ?2 AND entry <= ?1 ORDER BY entry DESC LIMIT 1";
      case Of::kSession:
        return "SELECT session_ms, session_amount FROM ledger_use "
               "WHERE session = ?2 AND entry <= ?1 ORDER BY entry DESC LIMIT 1";
    }
    OB_CHECK(false);
  }

  template <typename Bind>
  absl::StatusOr<Usage> UpTo(int64_t entry, const Bind& bind) {
    query_.Reset();
    bind(query_.Bind(1, entry));
    OB_ASSIGN_OR_RETURN(const bool found, query_.Step());
    if (!found) return Usage{};
    return Usage{.device_ms = query_.Int(0), .amount = MicroUsd{query_.Int(1)}};
  }

  Statement query_;
  const int64_t ahead_, last_;
};

}  // namespace

absl::StatusOr<int64_t> Ledger::LastEntry() {
  absl::MutexLock lock(&mutex_);
  return HeadNumber(*db_);
}

absl::StatusOr<std::map<TenantId, double>> Ledger::RecentUse(WallTime now, double half_life_s) {
  absl::MutexLock lock(&mutex_);
  const auto window_ms = static_cast<int64_t>(kRecentHalfLives * half_life_s * 1000);
  OB_ASSIGN_OR_RETURN(const int64_t ahead,
                      LastEntryBefore(*db_, WallTime{now.unix_ms - window_ms}));
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare("SELECT tenant, at_ms, unit_ms * (to_s - from_s) FROM "
                                   "ledger_entry WHERE number > ? AND tenant IS NOT NULL "
                                   "AND use < 2"));
  query.Bind(1, ahead);
  std::map<TenantId, double> used;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return used;
    // Stamped by a clock that was ahead: as of now.
    const auto ago_ms = static_cast<double>(std::max<int64_t>(0, now.unix_ms - query.Int(1)));
    used[TenantId{query.Int(0)}] +=
        static_cast<double>(query.Int(2)) / 1000 * std::exp2(-ago_ms / 1000 / half_life_s);
  }
}

absl::StatusOr<Usage> Ledger::UsageOf(TenantId tenant, const EntryRange& entries) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(UseSums sums, UseSums::Create(*db_, UseSums::Of::kTenant, entries));
  return sums.Sum([&](Statement& query) { query.Bind(2, tenant.value); });
}

absl::StatusOr<Usage> Ledger::UsageOfAll(const EntryRange& entries) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(UseSums sums, UseSums::Create(*db_, UseSums::Of::kAll, entries));
  return sums.Sum([](Statement&) {});
}

absl::StatusOr<Usage> Ledger::UsageOfSession(const SessionId& session, const EntryRange& entries) {
  OB_ASSIGN_OR_RETURN(const std::vector<Usage> usage, UsageOfSessions({&session, 1}, entries));
  return usage.front();
}

absl::StatusOr<std::vector<Usage>> Ledger::UsageOfSessions(std::span<const SessionId> sessions,
                                                           const EntryRange& entries) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(UseSums sums, UseSums::Create(*db_, UseSums::Of::kSession, entries));
  std::vector<Usage> usage;
  usage.reserve(sessions.size());
  for (const SessionId& session : sessions) {
    OB_ASSIGN_OR_RETURN(const Usage of_session,
                        sums.Sum([&](Statement& query) { query.BindBlob(2, session.Bytes()); }));
    usage.push_back(of_session);
  }
  return usage;
}

}  // namespace outboard::gateway
