// Verify: one pass over the entries of a snapshot, which recomputes what the writer should have
// stored, and the structure of the file beside it (docs/decisions/150-audit-in-one-pass.md).
#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/ledger_archive.h"
#include "gateway/ledger/ledger_schema.h"
#include "gateway/ledger/use_state.h"

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

// On a connection of its own, of the file as it is by then.
absl::Status VerifyStructureOf(const std::string& file) {
  // Not `read_only`: SQLite forgets the CHECKs of tables on such a connection.
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<Database> db, Database::Open(file, {.create = false}));
  OB_RETURN_IF_ERROR(db->Execute("PRAGMA query_only=ON"));
  // For each row it looks into every index: pages that stay are not read again and again.
  OB_RETURN_IF_ERROR(db->Execute("PRAGMA cache_size=-65536"));  // KiB
  return VerifyStructure(*db);
}

// The lines of all entries in one pass beside that over the entries, with the sums of accounts.
class LineCursor {
 public:
  static absl::StatusOr<LineCursor> Open(Database& db) {
    OB_ASSIGN_OR_RETURN(Statement rows, db.Prepare("SELECT id, name FROM ledger_account"));
    absl::flat_hash_map<int64_t, Account> accounts;
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      accounts[rows.Int(0)].name = rows.Text(1);
    }
    OB_ASSIGN_OR_RETURN(Statement lines,
                        db.Prepare("SELECT entry, line, account, amount FROM ledger_line "
                                   "ORDER BY entry, line"));
    LineCursor cursor(std::move(accounts), std::move(lines));
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
        Account& account = accounts_[lines_.Int(2)];
        account.sum += lines_.Int(3);
        found.push_back({LedgerAccount{account.name}, MicroUsd{lines_.Int(3)}});
      }
      OB_ASSIGN_OR_RETURN(has_line_, lines_.Step());
    }
    return found;
  }
  // Of the account's lines that were looked at.
  absl::int128 SumOf(int64_t account) const {
    const auto found = accounts_.find(account);
    return found == accounts_.end() ? 0 : found->second.sum;
  }

 private:
  struct Account {
    std::string name;
    absl::int128 sum = 0;
  };
  LineCursor(absl::flat_hash_map<int64_t, Account> accounts, Statement lines)
      : accounts_(std::move(accounts)), lines_(std::move(lines)) {}

  absl::flat_hash_map<int64_t, Account> accounts_;  // by row id
  Statement lines_;
  bool has_line_ = false;
};

// The columns of an entry in the pass over all of them.
enum EntryColumn : int {
  kNumber, kKey, kAtMs, kMemo, kBodyHash, kTenant, kSession, kGrant, kDevice, kPrice, kGrantedMs,
  kFrom, kTo, kUnitMs, kUse, kHash, kArchived, kArchivedAmount
};
constexpr char kAllEntries[] =
    "SELECT number, key, at_ms, memo, body_hash, tenant, session, grant_number, device, "
    "price_per_hour, granted_ms, from_s, to_s, unit_ms, use, hash, archived, archived_amount "
    "FROM ledger_entry ORDER BY number";

// L3, in the order of entries, which is that in which a device's time was charged.
class RangeCheck {
 public:
  RangeCheck(Database& db, MonthFiles& files) : db_(db), files_(files) {}

  absl::Status Add(const Statement& entry) {
    if (entry.IsNull(kSession)) return absl::OkStatus();
    const int64_t number = entry.Int(kNumber);
    const std::optional<SessionId> session = SessionId::FromBytes(entry.Blob(kSession));
    if (!session.has_value()) return BrokenEntry("L3", number, "names no session");
    const Terms terms{entry.Int(kTenant), entry.Int(kPrice), entry.Int(kGrantedMs),
                      entry.Int(kUse)};
    const auto [at, is_new] = devices_.try_emplace(
        Device{session->hi, session->lo, entry.Int(kGrant), entry.Int(kDevice)},
        Charged{terms, 0});
    Charged& charged = at->second;
    if (charged.terms != terms)
      return BrokenEntry("L3", number, "changes the account, price, grant or state of its lease");
    const bool follows = entry.Int(kUnitMs) * entry.Int(kFrom) == charged.to_ms;
    OB_ASSIGN_OR_RETURN(const bool is_second_part,
                        !follows && is_new ? IsInAFile(number) : absl::StatusOr<bool>(false));
    if (!follows && !is_second_part)
      return BrokenEntry("L3", number, "leaves a gap or overlaps");
    charged.to_ms = entry.Int(kUnitMs) * entry.Int(kTo);
    return absl::OkStatus();
  }

 private:
  using Device = std::tuple<uint64_t, uint64_t, int64_t, int64_t>;  // session, grant, device
  using Terms = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // tenant, price, granted, state
  struct Charged {
    Terms terms;
    int64_t to_ms = 0;
  };

  // Some of a lease's entries have moved, and this one and those behind it have not yet:
  // VerifyMonths checks the ranges of all in the month's file, and that the ledger has each entry.
  absl::StatusOr<bool> IsInAFile(int64_t number) {
    if (!months_.has_value()) {
      OB_ASSIGN_OR_RETURN(months_, MonthsWithEntries());
    }
    for (const std::string& month : *months_) {
      OB_ASSIGN_OR_RETURN(const bool has, files_.Has(month, number));
      if (has) return true;
    }
    return false;
  }
  // Months that some entries have moved to the files of. Reads all entries that have.
  absl::StatusOr<std::vector<std::string>> MonthsWithEntries() {
    OB_ASSIGN_OR_RETURN(Statement rows, db_.Prepare("SELECT DISTINCT archived FROM ledger_entry "
                                                    "WHERE archived IS NOT NULL"));
    std::vector<std::string> months;
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) return months;
      months.emplace_back(rows.Text(0));
    }
  }

  Database& db_;
  MonthFiles& files_;
  std::optional<std::vector<std::string>> months_;  // once they are asked for
  absl::flat_hash_map<Device, Charged> devices_;
};

// L9: the stored sums, in one pass beside that over the entries.
class UseCheck {
 public:
  static absl::StatusOr<UseCheck> Open(Database& db) {
    OB_ASSIGN_OR_RETURN(
        Statement uses,
        db.Prepare("SELECT entry, tenant, session, ms, amount, tenant_ms, tenant_amount, "
                   "session_ms, session_amount FROM ledger_use ORDER BY entry"));
    UseCheck check(std::move(uses));
    OB_ASSIGN_OR_RETURN(check.has_use_, check.uses_.Step());
    return check;
  }

  // Of an entry that charges `amount`; entries come in their order.
  absl::Status Add(const Statement& entry, int64_t amount) {
    if (entry.IsNull(kTenant)) return absl::OkStatus();
    const std::optional<SessionId> session =
        has_use_ ? SessionId::FromBytes(uses_.Blob(2)) : std::nullopt;
    if (!session.has_value() || uses_.Int(0) != entry.Int(kNumber) ||
        uses_.Int(1) != entry.Int(kTenant) ||
        (entry.IsNull(kArchived) && uses_.Blob(2) != entry.Blob(kSession)))
      return Broken("L9", "the stored use is not that of the entries");
    const int64_t ms = HoldsDevice(static_cast<UseState>(entry.Int(kUse)))
                           ? entry.Int(kUnitMs) * (entry.Int(kTo) - entry.Int(kFrom))
                           : 0;
    if (!of_all_.Adds(ms, amount, uses_, 3) ||
        !of_tenant_[uses_.Int(1)].Adds(ms, amount, uses_, 5) ||
        !of_session_[{session->hi, session->lo}].Adds(ms, amount, uses_, 7))
      return BrokenEntry("L9", entry.Int(kNumber), "has stored sums that are not those up to it");
    OB_ASSIGN_OR_RETURN(has_use_, uses_.Step());
    return absl::OkStatus();
  }
  absl::Status End() const {
    return has_use_ ? Broken("L9", "the stored use is not that of the entries") : absl::OkStatus();
  }

 private:
  struct Sum {
    absl::int128 ms = 0, amount = 0;
    bool Adds(int64_t more_ms, int64_t more, const Statement& row, int stored) {
      ms += more_ms;
      amount += more;
      return row.Int(stored) == ms && row.Int(stored + 1) == amount;
    }
  };
  explicit UseCheck(Statement uses) : uses_(std::move(uses)) {}

  Statement uses_;
  bool has_use_ = false;
  Sum of_all_;
  absl::flat_hash_map<int64_t, Sum> of_tenant_;
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, Sum> of_session_;
};

// L5 and L7 of an entry with this body, behind one with `hash` and `last_at`.
absl::Status Follow(const Statement& entry, int64_t number, const std::string& body_hash,
                    std::string& hash, WallTime& last_at) {
  const WallTime at{entry.Int(kAtMs)};
  if (at < last_at) return BrokenEntry("L7", number, "is stamped before the one ahead of it");
  if (body_hash.size() != kHashBytes) return BrokenEntry("L5", number, "has no hash");
  last_at = at;
  hash = EntryHash(hash, number, at, body_hash);
  if (entry.Blob(kHash) != hash)
    return BrokenEntry("L5", number, "does not follow from the one ahead of it");
  return absl::OkStatus();
}

// An entry whose month's file has it. What that says is compared with its hash, and nothing else is
// here.
absl::Status VerifyMoved(MonthFiles& files, const Statement& entry, LineCursor& lines,
                         int64_t number) {
  OB_ASSIGN_OR_RETURN(
      const EntryBody body,
      files.Read(std::string(entry.Text(kArchived)), number, entry.Blob(kBodyHash)));
  const Charge& charge = *body.charge;
  if (entry.Int(kTenant) != charge.tenant.value ||
      entry.Int(kGrant) != static_cast<int64_t>(charge.device.lease.grant) ||
      entry.Int(kUse) != static_cast<int64_t>(charge.use) || entry.IsNull(kArchivedAmount) ||
      entry.Int(kArchivedAmount) != charge.amount.value ||
      entry.Int(kFrom) * entry.Int(kUnitMs) != charge.from_ms ||
      entry.Int(kTo) * entry.Int(kUnitMs) != charge.to_ms)
    return BrokenEntry("L4", number, "is not what its file says");
  OB_ASSIGN_OR_RETURN(const std::vector<LedgerLine> here, lines.Of(number));
  if (!here.empty()) return BrokenEntry("L5", number, "has lines, and so has its file");
  return absl::OkStatus();
}

// Amounts by month and account, of rows (month, account, amount).
absl::StatusOr<std::map<std::pair<std::string, std::string>, int64_t>> ReadSums(Database& db,
                                                                                const char* sql) {
  OB_ASSIGN_OR_RETURN(Statement rows, db.Prepare(sql));
  std::map<std::pair<std::string, std::string>, int64_t> sums;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return sums;
    sums[{std::string(rows.Text(0)), std::string(rows.Text(1))}] = rows.Int(2);
  }
}

// The files themselves, and that the sums on which balances count are those of the entries that
// moved: one for each month and account, and no other.
absl::Status VerifyMonths(Database& db, MonthFiles& files) {
  OB_ASSIGN_OR_RETURN(Statement months,
                      db.Prepare("SELECT archived, COUNT(*) FROM ledger_entry "
                                 "WHERE archived IS NOT NULL GROUP BY archived"));
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, months.Step());
    if (!more) break;
    const std::string month(months.Text(0));
    OB_ASSIGN_OR_RETURN(const int64_t entries, files.Verify(month));
    if (entries < months.Int(1))
      return Broken("L6", absl::StrCat("the file of ", month, " lacks entries"));
    // A move that was broken off leaves some of a file's entries here, too.
    if (entries > months.Int(1)) OB_RETURN_IF_ERROR(files.VerifyKnown(db, month));
  }
  OB_ASSIGN_OR_RETURN(
      const auto due,
      ReadSums(db, "SELECT archived, 'tenant:' || tenant, -SUM(archived_amount) FROM ledger_entry "
                   "WHERE archived IS NOT NULL GROUP BY archived, tenant UNION ALL "
                   "SELECT archived, 'revenue', SUM(archived_amount) FROM ledger_entry "
                   "WHERE archived IS NOT NULL GROUP BY archived"));
  OB_ASSIGN_OR_RETURN(
      const auto stored,
      ReadSums(db, "SELECT s.month, IFNULL(a.name, ''), s.amount FROM ledger_archived_sum s "
                   "LEFT JOIN ledger_account a ON a.id = s.account"));
  if (stored == due) return absl::OkStatus();
  const auto [is, wanted] = std::mismatch(stored.begin(), stored.end(), due.begin(), due.end());
  const bool is_over = wanted == due.end() || (is != stored.end() && is->first < wanted->first);
  const std::string& month = (is_over ? is : wanted)->first.first;
  return Broken("L6", absl::StrCat("the sums of ", month, " are not those of its entries"));
}

// L6, of what the pass over the entries has added up.
absl::Status VerifyBalances(Database& db, const LineCursor& lines) {
  OB_ASSIGN_OR_RETURN(Statement accounts,
                      db.Prepare("SELECT id, name, balance FROM ledger_account ORDER BY id"));
  OB_ASSIGN_OR_RETURN(Statement archived,
                      db.Prepare("SELECT amount FROM ledger_archived_sum WHERE account = ?1"));
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, accounts.Step());
    if (!more) return absl::OkStatus();
    absl::int128 sum = lines.SumOf(accounts.Int(0));
    archived.Reset();
    archived.Bind(1, accounts.Int(0));
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool month, archived.Step());
      if (!month) break;
      sum += archived.Int(0);
    }
    if (sum != accounts.Int(2)) {
      std::string name(accounts.Text(1));
      if (name.starts_with("tenant:")) name.replace(0, 7, "account ");
      return Broken("L6", absl::StrCat("the balance of ", name, " is not the sum of its lines"));
    }
  }
}

// The head, and that nothing is left over.
absl::Status VerifyEnd(Database& db, const std::string& hash, WallTime last_at,
                       VerifyReport& report) {
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

// L1, L2 and L4 of an entry that is here, as what its hash covers.
absl::StatusOr<EntryBody> ReadBody(const Statement& entry, int64_t number,
                                   std::vector<LedgerLine> lines) {
  EntryBody body{.key = std::string(entry.Text(kKey)), .memo = std::string(entry.Text(kMemo))};
  body.lines = std::move(lines);
  const absl::Status balanced = CheckLines(body.lines);
  if (!balanced.ok()) return BrokenEntry("L1", number, std::string(balanced.message()));
  if (entry.IsNull(kSession)) return body;
  std::optional<Charge> charge = ChargeFrom(entry, kTenant);
  if (!charge.has_value()) return BrokenEntry("L5", number, "is no charge");
  charge->amount = body.lines[1].amount;
  const absl::Status sound = CheckCharge(*charge);
  if (!sound.ok()) return BrokenEntry("L4", number, std::string(sound.message()));
  body.unit_ms = entry.Int(kUnitMs);
  if (body.unit_ms != 1 && charge->use != UseState::kRun)
    return BrokenEntry("L5", number, "has a state that its hash does not cover");
  const EntryBody expected = BodyOf(*charge, body.unit_ms);
  if (expected.key != body.key || expected.lines != body.lines)
    return BrokenEntry("L2", number, "has a key or lines that are not its charge's");
  body.charge = charge;
  return body;
}

// All that can be said of entries, their lines and their use in one pass. What is wrong with an
// entry by itself or with the chain (L1, L2, L4, L5, L7) is said before what is wrong with ranges
// (L3), balances (L6) and use (L9), wherever that is.
absl::Status VerifyEntries(Database& db, MonthFiles& files, VerifyReport& report) {
  OB_ASSIGN_OR_RETURN(Statement entries, db.Prepare(kAllEntries));
  OB_ASSIGN_OR_RETURN(LineCursor lines, LineCursor::Open(db));
  OB_ASSIGN_OR_RETURN(UseCheck use, UseCheck::Open(db));
  RangeCheck ranges(db, files);
  absl::Status ranges_hold, use_holds;
  std::string hash(kHashBytes, '\0');
  WallTime last_at{0};
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, entries.Step());
    if (!more) break;
    const int64_t number = entries.Int(kNumber);
    if (number != report.entries + 1) return BrokenEntry("L5", report.entries + 1, "is missing");
    report.entries = number;

    int64_t amount = 0;
    if (!entries.IsNull(kArchived)) {
      OB_RETURN_IF_ERROR(VerifyMoved(files, entries, lines, number));
      ++report.archived;
      amount = entries.Int(kArchivedAmount);
      OB_RETURN_IF_ERROR(
          Follow(entries, number, std::string(entries.Blob(kBodyHash)), hash, last_at));
    } else {
      OB_ASSIGN_OR_RETURN(std::vector<LedgerLine> own, lines.Of(number));
      report.lines += static_cast<int64_t>(own.size());
      OB_ASSIGN_OR_RETURN(const EntryBody body, ReadBody(entries, number, std::move(own)));
      amount = body.lines[1].amount.value;
      const std::string body_hash = BodyHash(body);
      if (entries.Blob(kBodyHash) != body_hash)
        return BrokenEntry("L5", number, "is not what was hashed");
      OB_RETURN_IF_ERROR(Follow(entries, number, body_hash, hash, last_at));
    }
    if (ranges_hold.ok()) ranges_hold = ranges.Add(entries);
    if (use_holds.ok()) use_holds = use.Add(entries, amount);
  }
  OB_RETURN_IF_ERROR(VerifyEnd(db, hash, last_at, report));
  OB_RETURN_IF_ERROR(ranges_hold);
  OB_RETURN_IF_ERROR(VerifyBalances(db, lines));
  OB_RETURN_IF_ERROR(use_holds);
  return use.End();
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

// L10: the key whose cap counts is the lease's. Leases are rows of gateway/accounts in the same
// file; one without them, or from before they had keys, says nothing.
absl::Status VerifyKeysOfHolds(Database& db) {
  OB_ASSIGN_OR_RETURN(
      Statement column,
      db.Prepare("SELECT 1 FROM pragma_table_info('lease') WHERE name = 'key_id'"));
  OB_ASSIGN_OR_RETURN(const bool has_keys, column.Step());
  if (!has_keys) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(Statement other,
                      db.Prepare("SELECT 1 FROM ledger_hold h JOIN lease l ON l.session = "
                                 "h.session AND l.grant_number = h.grant_number "
                                 "WHERE l.key_id <> h.key_id LIMIT 1"));
  OB_ASSIGN_OR_RETURN(const bool found, other.Step());
  return found ? Broken("L10", "a hold counts for another key than its lease's")
               : absl::OkStatus();
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
  OB_RETURN_IF_ERROR(VerifyKeysOfHolds(db));
  return VerifyHeld(db, BudgetScope::kSession,
                    "SELECT lower(hex(session)), SUM(amount) FROM ledger_hold GROUP BY session");
}

}  // namespace

// Half of the time is the structure's, which nothing else of this depends on.
absl::StatusOr<VerifyReport> Ledger::Verify() {
  absl::MutexLock lock(&mutex_);
  VerifyReport report;
  MonthFiles files(folder_);
  std::future<absl::Status> structure;
  if (!file_.empty()) {
    try {
      structure = std::async(std::launch::async, [this] { return VerifyStructureOf(file_); });
    } catch (const std::system_error&) {
      // No thread is to be had: it is looked at here, ahead of the rest.
    }
  }
  absl::Status status = db_->Transaction(Database::Mode::kRead, [&]() -> absl::Status {
    if (!structure.valid()) OB_RETURN_IF_ERROR(VerifyStructure(*db_));
    OB_RETURN_IF_ERROR(VerifyEntries(*db_, files, report));
    OB_RETURN_IF_ERROR(VerifyMonths(*db_, files));
    return VerifyHolds(*db_);
  });
  // What is wrong with the structure explains the rest. That it could not be looked at does not.
  if (structure.valid()) {
    const absl::Status sound = structure.get();
    if (absl::IsDataLoss(sound) || status.ok()) status = sound;
  }
  // On an intact file our SQL is valid, so an error means damage.
  if (absl::IsInternal(status)) return Broken("structure", "the tables are not those of a ledger");
  if (!status.ok()) return status;
  return report;
}

}  // namespace outboard::gateway
