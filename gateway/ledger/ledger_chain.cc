// What proofs of a bill are made of: hashes of an account's entries, and the entries themselves.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/ledger_archive.h"
#include "gateway/ledger/ledger_schema.h"

namespace outboard::gateway {

using storage::Database;
using storage::Statement;

namespace {

absl::Status Damaged(int64_t number) {
  return absl::DataLossError(absl::StrCat("ledger: entry ", number, " is damaged"));
}

// The entries in which the account has a line, and those of which a month's file has them.
absl::StatusOr<std::vector<int64_t>> NumbersOf(Database& db, TenantId tenant, int64_t after,
                                               int64_t limit) {
  OB_ASSIGN_OR_RETURN(Statement here,
                      db.Prepare("SELECT l.entry FROM ledger_account a JOIN ledger_line l "
                                 "ON l.account = a.id WHERE a.name = ? AND l.entry > ? "
                                 "ORDER BY l.entry LIMIT ?"));
  here.BindText(1, LedgerAccount::Tenant(tenant).name).Bind(2, after).Bind(3, limit);
  OB_ASSIGN_OR_RETURN(
      Statement moved,
      db.Prepare("SELECT u.entry FROM ledger_use u JOIN ledger_entry e ON e.number = u.entry "
                 "WHERE u.tenant = ? AND u.entry > ? AND u.entry <= (SELECT MAX(number) FROM "
                 "ledger_entry WHERE archived IS NOT NULL) AND e.archived IS NOT NULL "
                 "ORDER BY u.entry LIMIT ?"));
  moved.Bind(1, tenant.value).Bind(2, after).Bind(3, limit);
  std::vector<int64_t> numbers;
  OB_ASSIGN_OR_RETURN(bool has_here, here.Step());
  OB_ASSIGN_OR_RETURN(bool has_moved, moved.Step());
  while (static_cast<int64_t>(numbers.size()) < limit && (has_here || has_moved)) {
    const bool from_here = has_here && (!has_moved || here.Int(0) < moved.Int(0));
    numbers.push_back(from_here ? here.Int(0) : moved.Int(0));
    if (from_here) {
      OB_ASSIGN_OR_RETURN(has_here, here.Step());
    } else {
      OB_ASSIGN_OR_RETURN(has_moved, moved.Step());
    }
  }
  return numbers;
}

}  // namespace

absl::StatusOr<ChainLinks> Ledger::LinksOf(TenantId tenant, int64_t after, int64_t limit) {
  absl::MutexLock lock(&mutex_);
  ChainLinks found;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kRead, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers,
                        NumbersOf(*db_, tenant, after, limit));
    OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare("SELECT number, at_ms, body_hash FROM "
                                                      "ledger_entry WHERE number = ?"));
    for (const int64_t number : numbers) {
      query.Reset();
      OB_ASSIGN_OR_RETURN(const bool is_there, query.Bind(1, number).Step());
      if (!is_there) return Damaged(number);
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
      const std::vector<int64_t> numbers,
      NumbersOf(*db_, tenant, after,
                std::clamp<int64_t>(limit, 0, static_cast<int64_t>(kStatementRowsMax))));
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare("SELECT number, at_ms, key, memo, tenant, session, grant_number, device, "
                   "price_per_hour, granted_ms, from_s, to_s, unit_ms, use, body_hash, archived "
                   "FROM ledger_entry WHERE number = ?"));
  OB_ASSIGN_OR_RETURN(
      Statement lines,
      db_->Prepare("SELECT a.name, l.amount FROM ledger_line l JOIN ledger_account a "
                   "ON a.id = l.account WHERE l.entry = ? ORDER BY l.line LIMIT ?"));
  MonthFiles files(folder_);
  std::vector<PostedEntry> entries;
  for (const int64_t number : numbers) {
    query.Reset();
    OB_ASSIGN_OR_RETURN(const bool is_there, query.Bind(1, number).Step());
    if (!is_there) return Damaged(number);
    PostedEntry& entry = entries.emplace_back();
    entry.number = number;
    entry.at = WallTime{query.Int(1)};
    if (!query.IsNull(15)) {
      OB_ASSIGN_OR_RETURN(entry.body,
                          files.Read(std::string(query.Text(15)), number, query.Blob(14)));
      continue;
    }
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
    std::optional<Charge> charge = ChargeFrom(query, 4);
    if (!charge.has_value() || entry.body.lines.size() != 2) return Damaged(entry.number);
    charge->amount = entry.body.lines[1].amount;
    entry.body.charge = charge;
    entry.body.unit_ms = query.Int(12);
  }
  return entries;
}

absl::StatusOr<std::string> Ledger::HashOfEntry(int64_t number) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare("SELECT hash FROM ledger_entry WHERE number = ?"));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, number).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("ledger: there is no entry ", number));
  return std::string(query.Blob(0));
}

}  // namespace outboard::gateway
