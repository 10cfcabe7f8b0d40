// Balances, statements and usage.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/ledger.h"

namespace outboard::gateway {

using storage::Statement;

absl::StatusOr<MicroUsd> Ledger::Balance(const LedgerAccount& account) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare("SELECT balance FROM ledger_account WHERE name = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.BindText(1, account.name).Step());
  return MicroUsd{found ? query.Int(0) : 0};
}

absl::StatusOr<std::vector<StatementRow>> Ledger::StatementOf(const LedgerAccount& account,
                                                              int64_t after, int64_t limit) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare(
          "SELECT e.number, e.at_ms, e.key, e.memo, l.amount, e.session, e.grant_number, "
          "e.device, e.from_s, e.to_s FROM ledger_account a "
          "JOIN ledger_line l ON l.account = a.id JOIN ledger_entry e ON e.number = l.entry "
          "WHERE a.name = ? AND l.entry > ? ORDER BY l.entry LIMIT ?"));
  query.BindText(1, account.name)
      .Bind(2, after)
      .Bind(3, std::clamp<int64_t>(limit, 0, static_cast<int64_t>(kStatementRowsMax)));
  std::vector<StatementRow> rows;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return rows;
    StatementRow& row = rows.emplace_back();
    row.number = query.Int(0);
    row.at = WallTime{query.Int(1)};
    row.key = query.Text(2);
    row.memo = query.Text(3);
    row.amount = MicroUsd{query.Int(4)};
    if (query.IsNull(5)) continue;
    const std::optional<SessionId> session = SessionId::FromBytes(query.Blob(5));
    if (!session.has_value())
      return absl::DataLossError(absl::StrCat("ledger: entry ", row.number, " is damaged"));
    row.device = LeasedDevice{{*session, static_cast<uint64_t>(query.Int(6))},
                              static_cast<uint32_t>(query.Int(7))};
    row.from_s = query.Int(8);
    row.to_s = query.Int(9);
  }
}

absl::StatusOr<int64_t> Ledger::LastEntry() {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare("SELECT number FROM ledger_head WHERE id = 1"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return absl::DataLossError("ledger: there is no head");
  return query.Int(0);
}

// Line 1 of a use entry is the revenue's.
absl::StatusOr<Usage> Ledger::QueryUsage(std::optional<TenantId> tenant,
                                         std::optional<SessionId> session,
                                         const EntryRange& entries) {
  std::string sql =
      "SELECT SUM(e.to_s - e.from_s), SUM(l.amount) FROM ledger_entry e "
      "JOIN ledger_line l ON l.entry = e.number AND l.line = 1 "
      "WHERE e.session IS NOT NULL AND e.at_ms >= ?1 AND e.number <= ?2";
  if (tenant.has_value()) sql += " AND e.tenant = ?3";
  if (session.has_value()) sql += " AND e.session = ?4";

  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare(sql));
  query.Bind(1, entries.since.unix_ms).Bind(2, entries.last);
  if (tenant.has_value()) query.Bind(3, tenant->value);
  if (session.has_value()) query.BindBlob(4, session->Bytes());
  OB_ASSIGN_OR_RETURN(const bool found, query.Step());
  OB_CHECK(found);  // a sum has one row; those of nothing are NULL, read as 0
  return Usage{.device_seconds = query.Int(0), .amount = MicroUsd{query.Int(1)}};
}

absl::StatusOr<Usage> Ledger::UsageOf(TenantId tenant, const EntryRange& entries) {
  return QueryUsage(tenant, std::nullopt, entries);
}

absl::StatusOr<Usage> Ledger::UsageOfAll(const EntryRange& entries) {
  return QueryUsage(std::nullopt, std::nullopt, entries);
}

absl::StatusOr<Usage> Ledger::UsageOfSession(const SessionId& session, const EntryRange& entries) {
  return QueryUsage(std::nullopt, session, entries);
}

}  // namespace outboard::gateway
