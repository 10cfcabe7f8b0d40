#include "gateway/doors/refusals.h"

#include <optional>
#include <utility>

#include "telemetry/counters.h"
#include "telemetry/log.h"

namespace outboard::gateway {

namespace {

constexpr std::chrono::minutes kOneLineIn{1};

constexpr std::string_view kNames[kRefusalReasons] = {
    "connections_of_address", "connections_in_total", "no_key_in_time",
    "bytes_before_key",       "wrong_key",            "wrong_keys_of_address",
    "calls_of_account",       "streams_of_account",   "openings_of_account",
};

// What /metrics calls it; none: whoever looked at the key has counted it.
std::optional<telemetry::Refusal> MetricOf(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kConnectionsOfAddress:
    case RefusalReason::kConnectionsInTotal:
    case RefusalReason::kBytesBeforeKey: return telemetry::Refusal::kConnections;
    case RefusalReason::kNoKeyInTime: return telemetry::Refusal::kFirstMessage;
    case RefusalReason::kWrongKey: return std::nullopt;
    case RefusalReason::kWrongKeysOfAddress:
    case RefusalReason::kCallsOfAccount:
    case RefusalReason::kOpeningsOfAccount: return telemetry::Refusal::kRate;
    case RefusalReason::kStreamsOfAccount: return telemetry::Refusal::kStreams;
  }
  return std::nullopt;
}

}  // namespace

std::string_view NameOf(RefusalReason reason) { return kNames[static_cast<size_t>(reason)]; }

Refusals::Refusals(Log log, std::function<Clock::time_point()> now)
    : log_(log ? std::move(log)
               : [](RefusalReason reason, uint64_t count, std::string_view last) {
                   telemetry::LogWarning(
                       "refused", {{"reason", NameOf(reason)}, {"count", count}, {"last", last}});
                 }),
      now_(std::move(now)) {}

void Refusals::Count(RefusalReason reason, std::string_view whose) {
  if (const auto metric = MetricOf(reason)) telemetry::CountRefused(*metric);
  uint64_t since = 0;
  {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[static_cast<size_t>(reason)];
    ++entry.count;
    const Clock::time_point now = now_();
    if (entry.logged > 0 && now - entry.logged_at < kOneLineIn) return;
    since = entry.count - entry.logged;
    entry.logged = entry.count;
    entry.logged_at = now;
  }
  log_(reason, since, whose);
}

uint64_t Refusals::count(RefusalReason reason) const {
  std::lock_guard lock(mutex_);
  return entries_[static_cast<size_t>(reason)].count;
}

}  // namespace outboard::gateway
