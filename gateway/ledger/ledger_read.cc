// Balances and statements, and the charge of a row.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/ledger_schema.h"
#include "gateway/ledger/limits.h"
#include "gateway/ledger/use_state.h"

namespace outboard::gateway {

using storage::Statement;

std::optional<Charge> ChargeFrom(const Statement& row, int first) {
  for (int column = first; column < first + 10; ++column)
    if (row.IsNull(column)) return std::nullopt;
  const std::optional<SessionId> session = SessionId::FromBytes(row.Blob(first + 1));
  const int64_t device = row.Int(first + 3), from = row.Int(first + 6), to = row.Int(first + 7);
  const int64_t unit_ms = row.Int(first + 8), use = row.Int(first + 9);
  if (!session.has_value() || device < 0 || device > UINT32_MAX ||
      (unit_ms != 1 && unit_ms != 1000) || from < 0 || to < 0 || from > kLeaseMsMax / unit_ms ||
      to > kLeaseMsMax / unit_ms || use < 0 || use >= kUseStates)
    return std::nullopt;
  return Charge{.device = {{*session, static_cast<uint64_t>(row.Int(first + 2))},
                           static_cast<uint32_t>(device)},
                .tenant = TenantId{row.Int(first)},
                .price_per_hour = MicroUsd{row.Int(first + 4)},
                .granted_at = WallTime{row.Int(first + 5)},
                .from_ms = from * unit_ms,
                .to_ms = to * unit_ms,
                .amount = {},
                .use = static_cast<UseState>(use)};
}

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
          "e.device, e.unit_ms * e.from_s, e.unit_ms * e.to_s FROM ledger_account a "
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
    row.from_ms = query.Int(8);
    row.to_ms = query.Int(9);
  }
}

}  // namespace outboard::gateway
