// Verify: passes over one snapshot; each recomputes what the writer should have stored.
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/ledger_archive.h"
#include "gateway/ledger/ledger_schema.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

absl::Status Broken(std::string_view invariant, std::string_view what) {
  return absl::DataLossError(
      absl::StrCat("ledger: ", std::string(invariant), " broken: ", std::string(what)));
}
absl::Status BrokenEntry(std::string_view invariant, int64_t number, std::string_view what) {
  return Broken(invariant, absl::StrCat("entry ", number, " ", std::string(what)));
}

// Checks SQLite's own structure, the agreement of tables and indices, the types of columns.
absl::Status VerifyStructure(Database& db) {
  OB_ASSIGN_OR_RETURN(Statement check, db.Prepare("PRAGMA integrity_check(1)"));
  OB_ASSIGN_OR_RETURN(const bool row, check.Step());
  if (!row || check.Text(0) != "ok") return Broken("structure", "the file is damaged");
  return absl::OkStatus();
}

// The lines of all entries in one pass beside that over the entries.
class LineCursor {
 public:
  static absl::StatusOr<LineCursor> Open(Database& db) {
    OB_ASSIGN_OR_RETURN(Statement accounts, db.Prepare("SELECT id, name FROM ledger_account"));
    std::unordered_map<int64_t, std::string> names;
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, accounts.Step());
      if (!more) break;
      names.emplace(accounts.Int(0), accounts.Text(1));
    }
    OB_ASSIGN_OR_RETURN(Statement lines,
                        db.Prepare("SELECT entry, line, account, amount FROM ledger_line "
                                   "ORDER BY entry, line"));
    LineCursor cursor(std::move(names), std::move(lines));
    OB_ASSIGN_OR_RETURN(cursor.has_line_, cursor.lines_.Step());
    return cursor;
  }

  // The lines of entry `number`; numbers must ascend. Lines of entries between are passed over, and
  // then missing from the count of all lines. More than an entry has, or with other numbers than 0,
  // 1 ...: DATA_LOSS.
  absl::StatusOr<std::vector<LedgerLine>> Of(int64_t number) {
    std::vector<LedgerLine> found;
    while (has_line_ && lines_.Int(0) <= number) {
      if (lines_.Int(0) == number) {
        if (found.size() >= kLinesPerEntryMax ||
            lines_.Int(1) != static_cast<int64_t>(found.size()))
          return BrokenEntry("L5", number, "has lines that do not belong to it");
        const auto name = names_.find(lines_.Int(2));
        found.push_back({LedgerAccount{name == names_.end() ? "" : name->second},
                         MicroUsd{lines_.Int(3)}});
      }
      OB_ASSIGN_OR_RETURN(has_line_, lines_.Step());
    }
    return found;
  }

 private:
  LineCursor(std::unordered_map<int64_t, std::string> names, Statement lines)
      : names_(std::move(names)), lines_(std::move(lines)) {}

  std::unordered_map<int64_t, std::string> names_;
  Statement lines_;
  bool has_line_ = false;
};

// L5 and L7 of an entry with this body, behind one with `hash` and `last_at`.
absl::Status Follow(const Statement& entry, int64_t number, const std::string& body_hash,
                    std::string& hash, WallTime& last_at) {
  const WallTime at{entry.Int(2)};
  if (at < last_at) return BrokenEntry("L7", number, "is stamped before the one ahead of it");
  if (body_hash.size() != kHashBytes) return BrokenEntry("L5", number, "has no hash");
  last_at = at;
  hash = EntryHash(hash, number, at, body_hash);
  if (entry.Blob(15) != hash)
    return BrokenEntry("L5", number, "does not follow from the one ahead of it");
  return absl::OkStatus();
}

// An entry whose month's file has it. What that says is compared with its hash, and nothing else is
// here.
absl::Status VerifyMoved(MonthFiles& files, const Statement& entry, LineCursor& lines,
                         int64_t number) {
  OB_ASSIGN_OR_RETURN(const EntryBody body,
                      files.Read(std::string(entry.Text(16)), number, entry.Blob(4)));
  if (entry.Int(5) != body.charge->tenant.value ||
      entry.Int(11) * entry.Int(13) != body.charge->from_ms ||
      entry.Int(12) * entry.Int(13) != body.charge->to_ms)
    return BrokenEntry("L4", number, "is not what its file says");
  OB_ASSIGN_OR_RETURN(const std::vector<LedgerLine> here, lines.Of(number));
  if (!here.empty()) return BrokenEntry("L5", number, "has lines, and so has its file");
  return absl::OkStatus();
}

// The files themselves, and that their sums are those that balances count on.
absl::Status VerifyMonths(Database& db, MonthFiles& files) {
  OB_ASSIGN_OR_RETURN(Statement months,
                      db.Prepare("SELECT archived, COUNT(*), SUM(archived_amount) FROM "
                                 "ledger_entry WHERE archived IS NOT NULL GROUP BY archived"));
  OB_ASSIGN_OR_RETURN(
      Statement sums,
      db.Prepare("SELECT SUM(s.amount), SUM(CASE WHEN a.name = 'revenue' THEN s.amount END) "
                 "FROM ledger_archived_sum s JOIN ledger_account a ON a.id = s.account "
                 "WHERE month = ?"));
  OB_ASSIGN_OR_RETURN(
      Statement tenants,
      db.Prepare("SELECT e.tenant, SUM(e.archived_amount), (SELECT s.amount FROM "
                 "ledger_archived_sum s JOIN ledger_account a ON a.id = s.account WHERE "
                 "s.month = ?1 AND a.name = 'tenant:' || e.tenant) FROM ledger_entry e "
                 "WHERE e.archived = ?1 GROUP BY e.tenant"));
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, months.Step());
    if (!more) return absl::OkStatus();
    const std::string month(months.Text(0));
    const auto broken = [&] {
      return Broken("L6", absl::StrCat("the sums of ", month, " are not those of its entries"));
    };
    OB_ASSIGN_OR_RETURN(const int64_t entries, files.Verify(month));
    // A move that was broken off leaves some of a file's entries here, too.
    if (entries < months.Int(1)) return broken();
    sums.Reset();
    OB_ASSIGN_OR_RETURN(const bool summed, sums.BindText(1, month).Step());
    if (!summed || sums.Int(0) != 0 || sums.Int(1) != months.Int(2)) return broken();
    tenants.Reset();
    tenants.BindText(1, month);
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool tenant, tenants.Step());
      if (!tenant) break;
      if (tenants.IsNull(2) || tenants.Int(2) != -tenants.Int(1)) return broken();
    }
  }
}

// L1, L2 (by the key that belongs to the body), L4, L5, L7.
absl::Status VerifyEntries(Database& db, MonthFiles& files, VerifyReport& report) {
  OB_ASSIGN_OR_RETURN(
      Statement entries,
      db.Prepare(
          "SELECT number, key, at_ms, memo, body_hash, tenant, session, grant_number, device, "
          "price_per_hour, granted_ms, from_s, to_s, unit_ms, use, hash, archived FROM "
          "ledger_entry "
          "ORDER BY number"));
  OB_ASSIGN_OR_RETURN(LineCursor lines, LineCursor::Open(db));
  std::string hash(kHashBytes, '\0');
  WallTime last_at{0};
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, entries.Step());
    if (!more) break;
    const int64_t number = entries.Int(0);
    if (number != report.entries + 1) return BrokenEntry("L5", report.entries + 1, "is missing");
    report.entries = number;

    if (!entries.IsNull(16)) {
      OB_RETURN_IF_ERROR(VerifyMoved(files, entries, lines, number));
      ++report.archived;
      OB_RETURN_IF_ERROR(Follow(entries, number, std::string(entries.Blob(4)), hash, last_at));
      continue;
    }
    EntryBody body{.key = std::string(entries.Text(1)), .memo = std::string(entries.Text(3))};
    OB_ASSIGN_OR_RETURN(body.lines, lines.Of(number));
    report.lines += static_cast<int64_t>(body.lines.size());
    const absl::Status balanced = CheckLines(body.lines);
    if (!balanced.ok()) return BrokenEntry("L1", number, std::string(balanced.message()));

    if (!entries.IsNull(6)) {
      std::optional<Charge> charge = ChargeFrom(entries, 5);
      if (!charge.has_value()) return BrokenEntry("L5", number, "is no charge");
      charge->amount = body.lines[1].amount;
      const absl::Status sound = CheckCharge(*charge);
      if (!sound.ok()) return BrokenEntry("L4", number, std::string(sound.message()));
      body.unit_ms = entries.Int(13);
      if (body.unit_ms != 1 && charge->use != UseState::kRun)
        return BrokenEntry("L5", number, "has a state that its hash does not cover");
      const EntryBody expected = BodyOf(*charge, body.unit_ms);
      if (expected.key != body.key || expected.lines != body.lines) {
        return BrokenEntry("L2", number, "has a key or lines that are not its charge's");
      }
      body.charge = charge;
    }

    const std::string body_hash = BodyHash(body);
    if (entries.Blob(4) != body_hash) return BrokenEntry("L5", number, "is not what was hashed");
    OB_RETURN_IF_ERROR(Follow(entries, number, body_hash, hash, last_at));
  }

  OB_ASSIGN_OR_RETURN(Statement head,
                      db.Prepare("SELECT number, at_ms, hash FROM ledger_head WHERE id = 1"));
  OB_ASSIGN_OR_RETURN(const bool found, head.Step());
  if (!found || head.Int(0) != report.entries || head.Int(1) != last_at.unix_ms ||
      head.Blob(2) != hash) {
    return Broken("L5", absl::StrCat("the head is not entry ", report.entries));
  }
  OB_ASSIGN_OR_RETURN(Statement count, db.Prepare("SELECT COUNT(*) FROM ledger_line"));
  OB_ASSIGN_OR_RETURN(const bool counted, count.Step());
  if (!counted || count.Int(0) != report.lines)
    return Broken("L5", "there are lines without an entry");
  const std::string_view bytes = hash;
  report.head_hash = absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
  return absl::OkStatus();
}

// L3.
absl::Status VerifyRanges(Database& db) {
  OB_ASSIGN_OR_RETURN(
      Statement ranges,
      db.Prepare(
          "SELECT session, grant_number, device, tenant, price_per_hour, granted_ms, "
          "unit_ms * from_s, unit_ms * to_s, number, use FROM ledger_entry "
          "WHERE session IS NOT NULL ORDER BY session, grant_number, device, from_s"));
  struct Device {
    std::string session;
    int64_t grant = -1, device = -1, tenant = 0, price = 0, granted_ms = 0, to_ms = 0, use = 0;
  } last;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, ranges.Step());
    if (!more) return absl::OkStatus();
    const int64_t number = ranges.Int(8);
    const bool same = ranges.Blob(0) == last.session && ranges.Int(1) == last.grant &&
                      ranges.Int(2) == last.device;
    if (!same) {
      last = Device{std::string(ranges.Blob(0)),
                    ranges.Int(1),
                    ranges.Int(2),
                    ranges.Int(3),
                    ranges.Int(4),
                    ranges.Int(5),
                    0,
                    ranges.Int(9)};
    }
    if (ranges.Int(3) != last.tenant || ranges.Int(4) != last.price ||
        ranges.Int(5) != last.granted_ms || ranges.Int(9) != last.use) {
      return BrokenEntry("L3", number, "changes the tenant, price, grant or state of its lease");
    }
    if (ranges.Int(6) != last.to_ms) return BrokenEntry("L3", number, "leaves a gap or overlaps");
    last.to_ms = ranges.Int(7);
  }
}

// L6.
absl::Status VerifyBalances(Database& db) {
  OB_ASSIGN_OR_RETURN(Statement accounts,
                      db.Prepare("SELECT id, name, balance FROM ledger_account ORDER BY id"));
  OB_ASSIGN_OR_RETURN(Statement lines,
                      db.Prepare("SELECT amount FROM ledger_line WHERE account = ?1 UNION ALL "
                                 "SELECT amount FROM ledger_archived_sum WHERE account = ?1"));
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, accounts.Step());
    if (!more) return absl::OkStatus();
    absl::int128 sum = 0;
    lines.Reset();
    lines.Bind(1, accounts.Int(0));
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool line, lines.Step());
      if (!line) break;
      sum += lines.Int(0);
    }
    if (sum != accounts.Int(2)) {
      return Broken("L6", absl::StrCat("the balance of ", std::string(accounts.Text(1)),
                                       " is not the sum of its lines"));
    }
  }
}

// L10, for one scope of budgets. `sql` returns each of its holds: name and amount, by name.
absl::Status VerifyHeld(Database& db, BudgetScope scope, const char* sql) {
  OB_ASSIGN_OR_RETURN(Statement holds, db.Prepare(sql));
  OB_ASSIGN_OR_RETURN(
      Statement budget,
      db.Prepare("SELECT held FROM ledger_budget WHERE scope = ? AND name = ?"));
  OB_ASSIGN_OR_RETURN(Statement sum, db.Prepare("SELECT COUNT(*) FROM ledger_budget "
                                                "WHERE scope = ? AND held <> 0"));
  int64_t with_holds = 0;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, holds.Step());
    if (!more) break;
    budget.Reset();
    OB_ASSIGN_OR_RETURN(
        const bool found,
        budget.Bind(1, static_cast<int64_t>(scope)).BindText(2, holds.Text(0)).Step());
    // Only accounts have one always.
    if (!found && scope != BudgetScope::kAccount) continue;
    if (!found || budget.Int(0) != holds.Int(1))
      return Broken("L10", "what a budget holds is not the sum of its holds");
    with_holds += holds.Int(1) != 0;
  }
  OB_ASSIGN_OR_RETURN(const bool counted, sum.Bind(1, static_cast<int64_t>(scope)).Step());
  OB_CHECK(counted);
  if (sum.Int(0) != with_holds) return Broken("L10", "a budget holds what no lease has");
  return absl::OkStatus();
}

// L10.
absl::Status VerifyHolds(Database& db) {
  OB_ASSIGN_OR_RETURN(
      Statement holds,
      db.Prepare("SELECT price_per_hour, posted_ms, funded_ms, amount FROM ledger_hold"));
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, holds.Step());
    if (!more) break;
    const MicroUsd price{holds.Int(0)};
    if (!CheckPrice(price).ok() || holds.Int(1) < 0 || holds.Int(2) > kLeaseMsMax ||
        holds.Int(2) < holds.Int(1) ||
        holds.Int(3) !=
            ChargeAfter(price, holds.Int(2)).value - ChargeAfter(price, holds.Int(1)).value)
      return Broken("L10", "a hold is not what the time that it is for costs");
  }
  OB_RETURN_IF_ERROR(VerifyHeld(db, BudgetScope::kAccount,
                                "SELECT CAST(tenant AS TEXT), SUM(amount) FROM ledger_hold "
                                "GROUP BY tenant"));
  OB_RETURN_IF_ERROR(VerifyHeld(db, BudgetScope::kKey,
                                "SELECT key_id, SUM(amount) FROM ledger_hold WHERE key_id <> '' "
                                "GROUP BY key_id"));
  return VerifyHeld(db, BudgetScope::kSession,
                    "SELECT lower(hex(session)), SUM(amount) FROM ledger_hold GROUP BY session");
}

// L9. Rows of other entries, or of another tenant or session, are missing in the join.
absl::Status VerifyUse(Database& db) {
  OB_ASSIGN_OR_RETURN(
      Statement count,
      db.Prepare("SELECT (SELECT COUNT(*) FROM ledger_entry WHERE tenant IS NOT NULL), "
                 "(SELECT COUNT(*) FROM ledger_use)"));
  OB_ASSIGN_OR_RETURN(const bool counted, count.Step());
  OB_CHECK(counted);
  const auto broken = [] { return Broken("L9", "the stored use is not that of the entries"); };
  if (count.Int(0) != count.Int(1)) return broken();
  // CROSS JOIN keeps ledger_use as the outer loop, which gives the order.
  OB_ASSIGN_OR_RETURN(
      Statement uses,
      db.Prepare(
          "SELECT u.entry, (e.use < 2) * e.unit_ms * (e.to_s - e.from_s), "
          "COALESCE(l.amount, e.archived_amount), u.ms, u.amount, u.tenant, u.tenant_ms, "
          "u.tenant_amount, u.session, u.session_ms, u.session_amount FROM ledger_use u "
          "CROSS JOIN ledger_entry e ON e.number = u.entry AND e.tenant = u.tenant "
          "AND (e.session = u.session OR e.archived IS NOT NULL) "
          "LEFT JOIN ledger_line l ON l.entry = u.entry AND l.line = 1 ORDER BY u.entry"));
  struct Sum {
    absl::int128 ms = 0, amount = 0;
    bool Adds(const Statement& row, int stored) {
      ms += row.Int(1);
      amount += row.Int(2);
      return row.Int(stored) == ms && row.Int(stored + 1) == amount;
    }
  };
  Sum of_all;
  std::unordered_map<int64_t, Sum> of_tenant;
  std::unordered_map<std::string, Sum> of_session;
  for (int64_t entries = 0;; ++entries) {
    OB_ASSIGN_OR_RETURN(const bool more, uses.Step());
    if (!more) return entries == count.Int(0) ? absl::OkStatus() : broken();
    if (!of_all.Adds(uses, 3) || !of_tenant[uses.Int(5)].Adds(uses, 6) ||
        !of_session[std::string(uses.Blob(8))].Adds(uses, 9))
      return BrokenEntry("L9", uses.Int(0), "has stored sums that are not those up to it");
  }
}

}  // namespace

absl::StatusOr<VerifyReport> Ledger::Verify() {
  absl::MutexLock lock(&mutex_);
  VerifyReport report;
  MonthFiles files(folder_);
  const absl::Status status = db_->Transaction(Database::Mode::kRead, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(VerifyStructure(*db_));
    OB_RETURN_IF_ERROR(VerifyEntries(*db_, files, report));
    OB_RETURN_IF_ERROR(VerifyMonths(*db_, files));
    OB_RETURN_IF_ERROR(VerifyRanges(*db_));
    OB_RETURN_IF_ERROR(VerifyBalances(*db_));
    OB_RETURN_IF_ERROR(VerifyUse(*db_));
    return VerifyHolds(*db_);
  });
  // On an intact file our SQL is valid, so an error means damage.
  if (absl::IsInternal(status)) return Broken("structure", "the tables are not those of a ledger");
  if (!status.ok()) return status;
  return report;
}

}  // namespace outboard::gateway
