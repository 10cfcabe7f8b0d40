// What proofs of a bill are made of: hashes of an account's entries, and the entries themselves.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"

namespace outboard::gateway {

using storage::Database;
using storage::Statement;

namespace {

absl::Status Damaged(int64_t number) {
  return absl::DataLossError(absl::StrCat("ledger: entry ", number, " is damaged"));
}

// Of the columns tenant to unit_ms, from the sixth.
absl::StatusOr<Charge> ChargeOf(const Statement& row, int64_t number) {
  const std::optional<SessionId> session = SessionId::FromBytes(row.Blob(5));
  const int64_t device = row.Int(7), unit_ms = row.Int(12);
  if (!session.has_value() || device < 0 || device > UINT32_MAX ||
      (unit_ms != 1 && unit_ms != 1000))
    return Damaged(number);
  return Charge{
      .device = {{*session, static_cast<uint64_t>(row.Int(6))}, static_cast<uint32_t>(device)},
      .tenant = TenantId{row.Int(4)},
      .price_per_hour = MicroUsd{row.Int(8)},
      .granted_at = WallTime{row.Int(9)},
      .from_ms = row.Int(10) * unit_ms,
      .to_ms = row.Int(11) * unit_ms,
      .amount = {}};
}

}  // namespace

absl::StatusOr<ChainLinks> Ledger::LinksOf(TenantId tenant, int64_t after, int64_t limit) {
  absl::MutexLock lock(&mutex_);
  ChainLinks found;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kRead, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(
        Statement query,
        db_->Prepare("SELECT e.number, e.at_ms, e.body_hash FROM ledger_account a "
                     "JOIN ledger_line l ON l.account = a.id "
                     "JOIN ledger_entry e ON e.number = l.entry "
                     "WHERE a.name = ? AND l.entry > ? ORDER BY l.entry LIMIT ?"));
    query.BindText(1, LedgerAccount::Tenant(tenant).name).Bind(2, after).Bind(3, limit);
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, query.Step());
      if (!more) break;
      found.links.push_back({query.Int(0), WallTime{query.Int(1)}, std::string(query.Blob(2))});
    }
    OB_ASSIGN_OR_RETURN(Statement head,
                        db_->Prepare("SELECT number, hash FROM ledger_head WHERE id = 1"));
    OB_ASSIGN_OR_RETURN(const bool has_head, head.Step());
    if (!has_head || head.Blob(1).size() != kHashBytes)
      return absl::DataLossError("ledger: there is no head");
    found.last_entry = head.Int(0);
    found.ledger_hash = head.Blob(1);
    return absl::OkStatus();
  }));
  return found;
}

absl::StatusOr<std::vector<PostedEntry>> Ledger::EntriesOf(TenantId tenant, int64_t after,
                                                           int64_t limit) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare("SELECT e.number, e.at_ms, e.key, e.memo, e.tenant, e.session, e.grant_number, "
                   "e.device, e.price_per_hour, e.granted_ms, e.from_s, e.to_s, e.unit_ms "
                   "FROM ledger_account a JOIN ledger_line l ON l.account = a.id "
                   "JOIN ledger_entry e ON e.number = l.entry "
                   "WHERE a.name = ? AND l.entry > ? ORDER BY l.entry LIMIT ?"));
  OB_ASSIGN_OR_RETURN(
      Statement lines,
      db_->Prepare("SELECT a.name, l.amount FROM ledger_line l JOIN ledger_account a "
                   "ON a.id = l.account WHERE l.entry = ? ORDER BY l.line LIMIT ?"));
  query.BindText(1, LedgerAccount::Tenant(tenant).name)
      .Bind(2, after)
      .Bind(3, std::clamp<int64_t>(limit, 0, static_cast<int64_t>(kStatementRowsMax)));
  std::vector<PostedEntry> entries;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return entries;
    PostedEntry& entry = entries.emplace_back();
    entry.number = query.Int(0);
    entry.at = WallTime{query.Int(1)};
    entry.body.key = query.Text(2);
    entry.body.memo = query.Text(3);
    lines.Reset();
    lines.Bind(1, entry.number).Bind(2, static_cast<int64_t>(kLinesPerEntryMax));
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool line, lines.Step());
      if (!line) break;
      entry.body.lines.push_back({{std::string(lines.Text(0))}, MicroUsd{lines.Int(1)}});
    }
    if (query.IsNull(5)) continue;
    OB_ASSIGN_OR_RETURN(Charge charge, ChargeOf(query, entry.number));
    if (entry.body.lines.size() != 2) return Damaged(entry.number);
    charge.amount = entry.body.lines[1].amount;
    entry.body.charge = charge;
    entry.body.unit_ms = query.Int(12);
  }
}

absl::StatusOr<std::string> Ledger::HashOfEntry(int64_t number) {
  if (number == 0) return std::string(kHashBytes, '\0');
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare("SELECT hash FROM ledger_entry WHERE number = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, number).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("ledger: there is no entry ", number));
  return std::string(query.Blob(0));
}

}  // namespace outboard::gateway
