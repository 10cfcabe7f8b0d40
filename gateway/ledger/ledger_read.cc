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

// Line 1 of a use entry is the revenue's.
absl::StatusOr<Usage> Ledger::QueryUsage(std::optional<TenantId> tenant,
                                         std::optional<SessionId> session, WallTime since) {
  std::string sql =
      "SELECT e.session, e.tenant, COUNT(DISTINCT e.grant_number), COUNT(DISTINCT e.device), "
      "MIN(e.granted_ms), "
      "MAX(e.at_ms), SUM(e.to_s - e.from_s), SUM(l.amount), MIN(e.number) AS first FROM "
      "ledger_entry e "
      "JOIN ledger_line l ON l.entry = e.number AND l.line = 1 WHERE e.session IS NOT NULL AND "
      "e.at_ms >= ?1";
  if (tenant.has_value()) sql += " AND e.tenant = ?2";
  if (session.has_value()) sql += " AND e.session = ?3";
  sql += " GROUP BY e.session ORDER BY first";

  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare(sql));
  query.Bind(1, since.unix_ms);
  if (tenant.has_value()) query.Bind(2, tenant->value);
  if (session.has_value()) query.BindBlob(3, session->Bytes());
  Usage usage;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return usage;
    const std::optional<SessionId> id = SessionId::FromBytes(query.Blob(0));
    if (!id.has_value()) return absl::DataLossError("ledger: a session's name is damaged");
    const SessionUsage& row =
        usage.sessions.emplace_back(SessionUsage{.session = *id,
                                                 .tenant = TenantId{query.Int(1)},
                                                 .leases = query.Int(2),
                                                 .devices = query.Int(3),
                                                 .granted_at = WallTime{query.Int(4)},
                                                 .posted_at = WallTime{query.Int(5)},
                                                 .device_seconds = query.Int(6),
                                                 .amount = MicroUsd{query.Int(7)}});
    usage.device_seconds += row.device_seconds;
    OB_ASSIGN_OR_RETURN(usage.amount, Add(usage.amount, row.amount));
  }
}

absl::StatusOr<Usage> Ledger::UsageOf(TenantId tenant, WallTime since) {
  return QueryUsage(tenant, std::nullopt, since);
}

absl::StatusOr<Usage> Ledger::UsageOfAll(WallTime since) {
  return QueryUsage(std::nullopt, std::nullopt, since);
}

absl::StatusOr<SessionUsage> Ledger::UsageOfSession(const SessionId& session) {
  OB_ASSIGN_OR_RETURN(const Usage usage, QueryUsage(std::nullopt, session, WallTime{INT64_MIN}));
  return usage.sessions.empty() ? SessionUsage{.session = session} : usage.sessions.front();
}

}  // namespace outboard::gateway
