#include "gateway/accounts/usage_breakdown.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/ledger/ledger.h"

namespace outboard::gateway {

namespace {

using storage::Statement;

struct Column {
  UsageBy by;
  std::string_view name;
  const char* sql;
};
constexpr Column kColumns[] = {
    {UsageBy::kAccount, "account", "IFNULL(t.name, CAST(e.tenant AS TEXT))"},
    {UsageBy::kKey, "key", "IFNULL(r.key_id, '')"},
    {UsageBy::kSession, "session", "lower(hex(u.session))"},
    {UsageBy::kDay, "day", "date(e.at_ms / 1000, 'unixepoch')"},
    {UsageBy::kState, "state",
     "CASE e.use WHEN 0 THEN 'run' WHEN 1 THEN 'held' WHEN 2 THEN 'parked' ELSE 'stored' END"}};

}  // namespace

std::string_view NameOf(UsageBy by) {
  for (const Column& column : kColumns)
    if (column.by == by) return column.name;
  return "";
}

absl::StatusOr<std::vector<UsageBy>> ParseUsageBy(std::string_view text) {
  std::vector<UsageBy> by;
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ',');
  for (const std::string& word : words) {
    const auto column = std::find_if(std::begin(kColumns), std::end(kColumns),
                                     [&](const Column& each) { return each.name == word; });
    if (column == std::end(kColumns))
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::CHexEscape(word), "\" is none of account, key, session, day and state"));
    if (std::find(by.begin(), by.end(), column->by) != by.end())
      return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" stands there twice"));
    by.push_back(column->by);
  }
  return by;
}

absl::StatusOr<std::unique_ptr<UsageBreakdown>> UsageBreakdown::Open(
    const std::string& accounts_path) {
  // Tables of an older version are brought up to date by whoever owns them.
  storage::OpenOptions existing;
  existing.create = false;
  OB_RETURN_IF_ERROR(Ledger::Open(accounts_path, existing).status());
  OB_RETURN_IF_ERROR(SessionRows::Open(accounts_path, existing).status());
  existing.read_only = true;
  OB_ASSIGN_OR_RETURN(std::unique_ptr<storage::Database> db,
                      storage::Database::Open(accounts_path, existing));
  return std::unique_ptr<UsageBreakdown>(new UsageBreakdown(std::move(db)));
}

absl::Status UsageBreakdown::Read(const std::vector<UsageBy>& by, WallTime since,
                                  const std::function<void(const UsagePart&)>& take) {
  OB_CHECK(!by.empty());
  std::vector<std::string> columns, numbers;
  for (const UsageBy each : by) {
    for (const Column& column : kColumns)
      if (column.by == each) columns.push_back(column.sql);
    numbers.push_back(absl::StrCat(columns.size()));
  }
  const std::string order = absl::StrJoin(numbers, ", ");
  const std::string ms = "e.unit_ms * (e.to_s - e.from_s)";
  OB_ASSIGN_OR_RETURN(
      Statement parts,
      db_->Prepare(absl::StrCat(
          "SELECT ", absl::StrJoin(columns, ", "), ", SUM((e.use < 2) * ", ms,
          "), SUM((e.use >= 2) * ", ms,
          // Of a month in a file of its own (ArchiveMonth), the ledger has the amount itself.
          "), SUM(COALESCE(l.amount, e.archived_amount)) FROM ledger_entry e "
          "JOIN ledger_use u ON u.entry = e.number "
          "LEFT JOIN ledger_line l ON l.entry = e.number AND l.line = 1 "
          "LEFT JOIN lease r ON r.session = u.session AND r.grant_number = e.grant_number "
          "LEFT JOIN tenant t ON t.id = e.tenant "
          "WHERE e.tenant IS NOT NULL AND e.at_ms >= ?1 GROUP BY ", order, " ORDER BY ",
          order)));
  parts.Bind(1, since.unix_ms);
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, parts.Step());
    if (!more) return absl::OkStatus();
    UsagePart part;
    const int count = static_cast<int>(by.size());
    for (int i = 0; i < count; ++i) part.names.emplace_back(parts.Text(i));
    part.device_ms = parts.Int(count);
    part.kept_ms = parts.Int(count + 1);
    part.amount = MicroUsd{parts.Int(count + 2)};
    take(part);
  }
}

}  // namespace outboard::gateway
