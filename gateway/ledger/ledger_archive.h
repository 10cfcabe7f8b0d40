// Files of closed months: what the entries of leases that ended then say, apart from the ledger
// itself, which keeps of them what its chain of hashes and its sums need. A file is beside the
// accounts file, `ledger-2026-10.db`, and can be checked against it at any time, as Ledger::Verify
// does.
//
// Transfers stay in the ledger, since their keys must be known for ever; so do leases that were
// charged later than the month.
// Internal to gateway/ledger.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/entry.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

// Begin and end of a month, UTC. INVALID_ARGUMENT: not like "2026-10".
struct MonthRange {
  WallTime begin, end;
};
absl::StatusOr<MonthRange> MonthFrom(std::string_view month);

class MonthFiles {
 public:
  explicit MonthFiles(std::string folder) : folder_(std::move(folder)) {}

  // Returns the entry as it was posted, checked against its hash.
  // Errors: NOT_FOUND  the month's file is not there; DATA_LOSS  the entry is not, or is another
  absl::StatusOr<EntryBody> Read(const std::string& month, int64_t number,
                                 std::string_view body_hash);
  // Checks everything in the month's file but what Read does: that amounts, keys and ranges are
  // those of charges. Returns the number of entries.
  absl::StatusOr<int64_t> Verify(const std::string& month);

  // Whether the month's file has the entry, moved or not yet.
  absl::StatusOr<bool> Has(const std::string& month, int64_t number);

  // Checks that the ledger has every entry of the month's file, moved or not yet, with this hash.
  absl::Status VerifyKnown(storage::Database& ledger, const std::string& month);

  std::string PathOf(const std::string& month) const;

  static constexpr const char* kSchema[] = {R"sql(
CREATE TABLE archived_entry(
  number INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  tenant INTEGER NOT NULL,
  session BLOB NOT NULL,
  grant_number INTEGER NOT NULL,
  device INTEGER NOT NULL,
  price_per_hour INTEGER NOT NULL,
  granted_ms INTEGER NOT NULL,
  from_s INTEGER NOT NULL,
  to_s INTEGER NOT NULL,
  unit_ms INTEGER NOT NULL,
  body_hash BLOB NOT NULL,
  hash BLOB NOT NULL,
  use INTEGER NOT NULL
) STRICT;
CREATE INDEX archived_by_device ON archived_entry(session, grant_number, device, from_s);
)sql"};

 private:
  absl::StatusOr<storage::Database*> Open(const std::string& month);

  const std::string folder_;
  std::map<std::string, std::unique_ptr<storage::Database>> open_;
};

}  // namespace outboard::gateway
