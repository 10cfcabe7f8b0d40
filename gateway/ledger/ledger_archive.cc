#include "gateway/ledger/ledger_archive.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failpoint.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/ledger_schema.h"

namespace outboard::gateway {

using storage::Database;
using storage::Statement;

namespace {

constexpr char kComponent[] = "ledger month";
constexpr char kColumns[] =
    "SELECT number, tenant, session, grant_number, device, price_per_hour, granted_ms, from_s, "
    "to_s, unit_ms, use, body_hash FROM archived_entry ";
// Entries that move in one transaction: others post in between.
constexpr size_t kEntriesPerMove = 2'000;

absl::Status Damaged(const std::string& month, int64_t number, std::string_view what) {
  return absl::DataLossError(
      absl::StrCat("ledger: entry ", number, " of ", month, " ", std::string(what)));
}

// Of a row of kColumns; its amount is what the range costs.
absl::StatusOr<EntryBody> BodyFrom(const Statement& row, const std::string& month) {
  const int64_t number = row.Int(0);
  std::optional<Charge> charge = ChargeFrom(row, 1);
  if (!charge.has_value() || !CheckPrice(charge->price_per_hour).ok() ||
      charge->to_ms < charge->from_ms)
    return Damaged(month, number, "is no charge");
  charge->amount.value = ChargeAfter(charge->price_per_hour, charge->to_ms).value -
                         ChargeAfter(charge->price_per_hour, charge->from_ms).value;
  if (!CheckCharge(*charge).ok()) return Damaged(month, number, "is no charge");
  return BodyOf(*charge, row.Int(9));
}

// So that the name of a new file in it outlives a cut of power.
absl::Status SyncFolder(const std::string& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool is_synced = file >= 0 && fsync(file) == 0;
  const int error = errno;
  if (file >= 0) close(file);
  if (is_synced) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("ledger: its folder cannot be written to disk: ", strerror(error)));
}

// The use entries of leases whose last charge is in the month, and for which nothing is held.
absl::StatusOr<std::vector<int64_t>> EntriesOfMonth(Database& db, const MonthRange& month) {
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db.Prepare("WITH ended AS (SELECT session, grant_number FROM ledger_entry "
                 "WHERE session IS NOT NULL GROUP BY session, grant_number "
                 "HAVING MAX(at_ms) >= ?1 AND MAX(at_ms) < ?2) "
                 "SELECT e.number FROM ledger_entry e JOIN ended ON e.session = ended.session "
                 "AND e.grant_number = ended.grant_number WHERE NOT EXISTS("
                 "SELECT 1 FROM ledger_hold h WHERE h.session = e.session AND "
                 "h.grant_number = e.grant_number) ORDER BY e.number"));
  query.Bind(1, month.begin.unix_ms).Bind(2, month.end.unix_ms);
  std::vector<int64_t> numbers;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return numbers;
    numbers.push_back(query.Int(0));
  }
}

// Copies entries into the month's file, which may have some of them from an attempt before.
absl::Status Copy(Database& db, Database& file, const std::string& month,
                  const std::vector<int64_t>& numbers) {
  return file.Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(
        Statement read,
        db.Prepare("SELECT number, at_ms, tenant, session, grant_number, device, price_per_hour, "
                   "granted_ms, from_s, to_s, unit_ms, body_hash, hash, use FROM ledger_entry "
                   "WHERE number = ?"));
    OB_ASSIGN_OR_RETURN(Statement write,
                        file.Prepare("INSERT INTO archived_entry VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, "
                                     "?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"));
    for (const int64_t number : numbers) {
      read.Reset();
      OB_ASSIGN_OR_RETURN(const bool found, read.Bind(1, number).Step());
      if (!found) return Damaged(month, number, "is missing");
      write.Reset();
      for (int column = 0; column < 14; ++column) {
        if (column == 3 || column == 11 || column == 12)
          write.BindBlob(column + 1, read.Blob(column));
        else
          write.Bind(column + 1, read.Int(column));
      }
      OB_RETURN_IF_ERROR(write.Run());
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<MonthRange> MonthFrom(std::string_view month) {
  int year = 0, number = 0;
  if (month.size() != 7 || month[4] != '-' ||
      !absl::SimpleAtoi(std::string(month.substr(0, 4)), &year) ||
      !absl::SimpleAtoi(std::string(month.substr(5)), &number) || year < 1970 || number < 1 ||
      number > 12)
    return absl::InvalidArgumentError(
        absl::StrCat("a month is written like 2026-10, not \"", std::string(month), "\""));
  using std::chrono::sys_days;
  const auto begin = std::chrono::year(year) / std::chrono::month(static_cast<unsigned>(number));
  const auto at = [](std::chrono::year_month date) {
    return WallTime{std::chrono::duration_cast<std::chrono::milliseconds>(
                        sys_days(date / 1).time_since_epoch())
                        .count()};
  };
  return MonthRange{at(begin), at(begin + std::chrono::months(1))};
}

std::string MonthFiles::PathOf(const std::string& month) const {
  return absl::StrCat(folder_, "/ledger-", month, ".db");
}

absl::StatusOr<Database*> MonthFiles::Open(const std::string& month) {
  std::unique_ptr<Database>& db = open_[month];
  if (db != nullptr) return db.get();
  OB_RETURN_IF_ERROR(MonthFrom(month).status());  // a name of a file, from a table
  auto opened = Database::OpenFor(kComponent, kSchema, PathOf(month),
                                  {.create = false, .read_only = true});
  if (absl::IsNotFound(opened.status()))
    return absl::NotFoundError(absl::StrCat("the ledger's file of ", month, " is not there"));
  if (!opened.ok()) return opened.status();
  db = *std::move(opened);
  return db.get();
}

absl::StatusOr<EntryBody> MonthFiles::Read(const std::string& month, int64_t number,
                                           std::string_view body_hash) {
  OB_ASSIGN_OR_RETURN(Database* const db, Open(month));
  OB_ASSIGN_OR_RETURN(Statement query,
                      db->Prepare(absl::StrCat(kColumns, "WHERE number = ?")));
  OB_ASSIGN_OR_RETURN(const bool found, query.Bind(1, number).Step());
  if (!found) return Damaged(month, number, "is missing in its file");
  OB_ASSIGN_OR_RETURN(EntryBody body, BodyFrom(query, month));
  if (BodyHash(body) != body_hash) return Damaged(month, number, "is not what was hashed");
  return body;
}

absl::StatusOr<bool> MonthFiles::Has(const std::string& month, int64_t number) {
  OB_ASSIGN_OR_RETURN(Database* const db, Open(month));
  OB_ASSIGN_OR_RETURN(Statement query,
                      db->Prepare("SELECT 1 FROM archived_entry WHERE number = ?"));
  return query.Bind(1, number).Step();
}

absl::StatusOr<int64_t> MonthFiles::Verify(const std::string& month) {
  OB_ASSIGN_OR_RETURN(Database* const db, Open(month));
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db->Prepare(absl::StrCat(kColumns, "ORDER BY session, grant_number, device, from_s")));
  std::optional<Charge> last;
  for (int64_t entries = 0;; ++entries) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return entries;
    OB_ASSIGN_OR_RETURN(const EntryBody body, BodyFrom(query, month));
    if (BodyHash(body) != query.Blob(11))
      return Damaged(month, query.Int(0), "is not what was hashed");
    const Charge& charge = *body.charge;
    const bool same = last.has_value() && last->device == charge.device;
    if (same && (last->tenant != charge.tenant || last->price_per_hour != charge.price_per_hour ||
                 last->granted_at != charge.granted_at || last->use != charge.use))
      return Damaged(month, query.Int(0), "changes the account, price or grant of its lease");
    if (charge.from_ms != (same ? last->to_ms : 0))
      return Damaged(month, query.Int(0), "leaves a gap or overlaps");
    last = charge;
  }
}

absl::Status MonthFiles::VerifyKnown(Database& ledger, const std::string& month) {
  OB_ASSIGN_OR_RETURN(Database* const db, Open(month));
  OB_ASSIGN_OR_RETURN(Statement entries,
                      db->Prepare("SELECT number, body_hash FROM archived_entry"));
  OB_ASSIGN_OR_RETURN(
      Statement find,
      ledger.Prepare("SELECT body_hash FROM ledger_entry WHERE number = ?"));
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, entries.Step());
    if (!more) return absl::OkStatus();
    find.Reset();
    OB_ASSIGN_OR_RETURN(const bool found, find.Bind(1, entries.Int(0)).Step());
    if (!found || find.Blob(0) != entries.Blob(1))
      return Damaged(month, entries.Int(0), "is not one of the ledger's");
  }
}

absl::StatusOr<int64_t> Ledger::ArchiveMonth(std::string_view month_text, WallTime now) {
  const std::string month(month_text);
  OB_ASSIGN_OR_RETURN(const MonthRange range, MonthFrom(month));
  if (now < range.end)
    return absl::FailedPreconditionError(absl::StrCat(month, " is not over yet"));
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, EntriesOfMonth(*db_, range));
  if (numbers.empty()) return 0;
  MonthFiles files(folder_);
  {
    OB_ASSIGN_OR_RETURN(
        const std::unique_ptr<Database> file,
        Database::OpenFor(kComponent, MonthFiles::kSchema, files.PathOf(month), {}));
    OB_RETURN_IF_ERROR(Copy(*db_, *file, month, numbers));
  }
  OB_RETURN_IF_ERROR(SyncFolder(folder_));
  PassFailpoint("ledger.archive.copied");
  // Read as others will read it, before anything goes.
  OB_RETURN_IF_ERROR(files.Verify(month).status());
  PassFailpoint("ledger.archive.verified");
  for (size_t from = 0; from < numbers.size(); from += kEntriesPerMove) {
    const std::vector<int64_t> some(
        numbers.begin() + static_cast<int64_t>(from),
        numbers.begin() + static_cast<int64_t>(std::min(numbers.size(), from + kEntriesPerMove)));
    OB_RETURN_IF_ERROR(Move(files, month, some));
    PassFailpoint("ledger.archive.moved");
  }
  return static_cast<int64_t>(numbers.size());
}

absl::Status Ledger::Move(MonthFiles& files, const std::string& month,
                          const std::vector<int64_t>& numbers) {
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(
        Statement find,
        db_->Prepare("SELECT body_hash FROM ledger_entry WHERE number = ? AND archived IS NULL"));
    OB_ASSIGN_OR_RETURN(
        Statement add_sum,
        db_->Prepare("INSERT INTO ledger_archived_sum SELECT ?1, account, amount FROM ledger_line "
                     "WHERE entry = ?2 "
                     "ON CONFLICT DO UPDATE SET amount = amount + excluded.amount"));
    OB_ASSIGN_OR_RETURN(
        Statement strip,
        db_->Prepare("UPDATE ledger_entry SET archived = ?1, archived_amount = "
                     "(SELECT amount FROM ledger_line WHERE entry = ?2 AND line = 1), "
                     "key = 'use/#' || number, memo = '', session = NULL, "
                     "device = NULL, price_per_hour = NULL, granted_ms = NULL WHERE number = ?2"));
    OB_ASSIGN_OR_RETURN(Statement drop, db_->Prepare("DELETE FROM ledger_line WHERE entry = ?"));
    for (const int64_t number : numbers) {
      find.Reset();
      OB_ASSIGN_OR_RETURN(const bool found, find.Bind(1, number).Step());
      if (!found) continue;  // another process moved it meanwhile
      OB_RETURN_IF_ERROR(files.Read(month, number, find.Blob(0)).status());
      add_sum.Reset();
      OB_RETURN_IF_ERROR(add_sum.BindText(1, month).Bind(2, number).Run());
      strip.Reset();
      OB_RETURN_IF_ERROR(strip.BindText(1, month).Bind(2, number).Run());
      drop.Reset();
      OB_RETURN_IF_ERROR(drop.Bind(1, number).Run());
    }
    return absl::OkStatus();
  });
}

}  // namespace outboard::gateway
