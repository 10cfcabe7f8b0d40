// The use of a tenant, as `outboard usage` shows it: seconds of devices and amounts in
// micro-dollars, by session. Times for people are UTC. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gateway/ledger/ids.h"
#include "gateway/ledger/money.h"

namespace outboard::gateway {

// One session, over all its leases.
struct SessionUsage {
  SessionId session;
  TenantId tenant;
  int64_t leases = 0;
  int64_t devices = 0;  // distinct device indices
  WallTime granted_at;  // of the first lease
  WallTime posted_at;   // of the last posting
  int64_t device_seconds = 0;
  MicroUsd amount;
};

// Sessions in the order of their first posting.
struct Usage {
  std::vector<SessionUsage> sessions;
  int64_t device_seconds = 0;
  MicroUsd amount;
};

// Returns one JSON object: {"sessions": [{"session", "tenant", "leases", "devices", "granted_at",
// "posted_at", "device_seconds", "amount_micro_usd", "amount_usd"}], "device_seconds",
// "amount_micro_usd", "amount_usd"}; times are ISO 8601 UTC, amount_usd a string with six digits.
// Ends without a newline.
std::string UsageJson(const Usage& usage);

// Returns the same as a text table: a header, one line per session, a line of totals; columns
// aligned, each line ends with a newline.
std::string UsageTable(const Usage& usage);

// Returns ISO 8601 UTC: "2026-01-31T12:34:56Z".
std::string ToString(WallTime time);

}  // namespace outboard::gateway
