#include "gateway/ledger/usage.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace outboard::gateway {
namespace {

// As ToString, without the currency sign: for a program that parses decimals.
std::string Decimal(MicroUsd amount) {
  std::string text = ToString(amount);
  text.erase(text.find('$'), 1);
  return text;
}

}  // namespace

std::string ToString(WallTime time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(time.unix_ms),
                          absl::UTCTimeZone());
}

// No value below needs escaping: hex digits, numbers and time stamps.
std::string UsageJson(const Usage& usage) {
  std::string out = "{\"sessions\": [";
  for (size_t i = 0; i < usage.sessions.size(); ++i) {
    const SessionUsage& row = usage.sessions[i];
    absl::StrAppend(&out, i == 0 ? "" : ", ", "{\"session\": \"", row.session.Hex(),
                    "\", \"tenant\": ", row.tenant.value, ", \"leases\": ", row.leases,
                    ", \"devices\": ", row.devices, ", \"granted_at\": \"",
                    ToString(row.granted_at), "\", \"posted_at\": \"", ToString(row.posted_at),
                    "\"");
    absl::StrAppend(&out, ", \"device_seconds\": ", row.device_seconds,
                    ", \"amount_micro_usd\": ", row.amount.value, ", \"amount_usd\": \"",
                    Decimal(row.amount), "\"}");
  }
  absl::StrAppend(&out, "], \"device_seconds\": ", usage.device_seconds,
                  ", \"amount_micro_usd\": ", usage.amount.value, ", \"amount_usd\": \"",
                  Decimal(usage.amount), "\"}");
  return out;
}

std::string UsageTable(const Usage& usage) {
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows = {{"session", "granted", "devices", "device-seconds", "amount"}};
  for (const SessionUsage& row : usage.sessions) {
    rows.push_back({row.session.Hex(), ToString(row.granted_at), absl::StrCat(row.devices),
                    absl::StrCat(row.device_seconds), ToString(row.amount)});
  }
  rows.push_back({"total", "", "", absl::StrCat(usage.device_seconds), ToString(usage.amount)});
  std::array<int, 5> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], static_cast<int>(row[i].size()));
  }
  std::string out;
  for (const Row& row : rows) {
    absl::StrAppendFormat(&out, "%-*s  %-*s  %*s  %*s  %*s\n", widths[0], row[0], widths[1], row[1],
                          widths[2], row[2], widths[3], row[3], widths[4], row[4]);
  }
  return out;
}

}  // namespace outboard::gateway
