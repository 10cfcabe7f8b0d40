// What was charged, by key, session, day or state: for operators (`outboard usage --by`).
//
// Reads every entry since a time, through a connection of its own. Threads: one at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/money.h"
#include "gateway/ledger/use_state.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

// What sums are by.
enum class UsageBy { kAccount, kKey, kSession, kDay, kState };

// "key,session,day": some of account, key, session, day, state, each once.
// Errors: INVALID_ARGUMENT  names the word
absl::StatusOr<std::vector<UsageBy>> ParseUsageBy(std::string_view text);
std::string_view NameOf(UsageBy by);

struct UsagePart {
  std::vector<std::string> names;  // of each of `by`; a key of before keys were noted: ""
  int64_t device_ms = 0;           // of RUN and HELD
  int64_t kept_ms = 0;             // of PARKED and STORED, for each device
  MicroUsd amount;
};

class UsageBreakdown {
 public:
  // NOT_FOUND: there is no such file.
  static absl::StatusOr<std::unique_ptr<UsageBreakdown>> Open(const std::string& accounts_path);
  // Calls `take` for each part, in the order of its names. Days are UTC, by when it was posted.
  absl::Status Read(const std::vector<UsageBy>& by, WallTime since,
                    const std::function<void(const UsagePart&)>& take);

 private:
  explicit UsageBreakdown(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}
  std::unique_ptr<storage::Database> db_;
};

}  // namespace outboard::gateway
