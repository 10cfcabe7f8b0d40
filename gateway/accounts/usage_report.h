// The bill, as `outboard usage` shows it: every session with when it began, how long it held
// devices, what was charged.
//
// Reads page by page, so that a tenant may have a million sessions, each with a million postings: a
// page takes some milliseconds. Charges are those that were posted when the first page was read:
// totals and lines of all pages belong together.
// Times for people are UTC. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/ledger/ledger.h"

namespace outboard::gateway {

// Sessions in one page: some 80 KB as a message, a tenth of the largest.
inline constexpr size_t kUsageSessionsPerPage = 1000;

// The latest time of a report, in seconds since 1970: in milliseconds still an int64.
inline constexpr int64_t kLatestUnixS = int64_t{1} << 40;

struct SessionUsage {
  SessionId session;
  WallTime began_at;
  bool open = false;    // the books have no end of it
  int64_t devices = 0;  // the most that it held at once; 0: it never got one
  // How long it held devices, in milliseconds of the wall clock. Nothing: the
  // gateway that was asked does not say.
  std::optional<int64_t> used_ms;
  bool used_at_least = false;  // used_ms or longer
  Usage charged;               // without pauses
};

struct UsagePage {
  std::vector<SessionUsage> sessions;  // by began_at; perhaps none, where `next` is not empty
  std::optional<Usage> total;          // in the first page: of the ledger
  std::string next;                    // asks for the next page; empty: this is the last
};

struct UsageQuery {
  std::optional<TenantId> tenant;  // nothing: of all
  WallTime since{INT64_MIN};       // sessions that ran since then, charges that were posted since
  // The time, for devices that are held. Nothing: it is not known whether they are, since the
  // gateway may have been killed; their use is then what was charged, or longer.
  std::optional<WallTime> now;
  std::string after;  // UsagePage::next
};

// Reads through connections of its own: a long report delays no posting.
class UsageReport {
 public:
  // Opens an accounts file. NOT_FOUND: there is none.
  static absl::StatusOr<std::unique_ptr<UsageReport>> Open(const std::string& path);
  // INVALID_ARGUMENT: `after` is not of a page.
  absl::StatusOr<UsagePage> Read(const UsageQuery& query);

 private:
  UsageReport(std::unique_ptr<Ledger> ledger, std::unique_ptr<SessionRows> rows)
      : ledger_(std::move(ledger)), rows_(std::move(rows)) {}

  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<SessionRows> rows_;
};

// The pages as text. A table has a header, a line for each session and one of totals. JSON is one
// object: {"sessions": [{"session", "began_at", "open", "devices", "used_seconds" (null: not
// known), "used_at_least", "device_seconds", "amount_micro_usd", "amount_usd"}], "device_seconds",
// "amount_micro_usd", "amount_usd"}; times are ISO 8601 UTC, amount_usd a string with six digits.
//
// What the ledger charged to no session of the pages (posted late, or its row was damaged) is a
// line "(others)", in JSON "other_device_seconds" and "other_amount_micro_usd", so that lines add
// up to totals.
class UsageText {
 public:
  explicit UsageText(bool json) : json_(json) {}
  std::string Add(const UsagePage& page);  // each in turn, from the first
  std::string End();                       // ends with a newline

 private:
  const bool json_;
  bool begun_ = false;
  int64_t sessions_ = 0;
  Usage listed_, total_;
};

}  // namespace outboard::gateway
