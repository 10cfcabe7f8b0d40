// Names of tenants, sessions, leases and devices, and the two kinds of time, as types that cannot
// be swapped.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outboard::gateway {

// Row number of a tenant in the accounts file; positive.
struct TenantId {
  int64_t value = 0;
  auto operator<=>(const TenantId&) const = default;
};

// The random 128-bit id of a session, chosen by the gateway; on the wire 16 bytes, big endian, hi
// first.
struct SessionId {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const SessionId&) const = default;

  std::string Hex() const;                                        // 32 lower-case digits
  std::string Bytes() const;                                      // 16 bytes
  static std::optional<SessionId> FromHex(std::string_view hex);  // exactly 32 lower-case digits
  static std::optional<SessionId> FromBytes(std::string_view bytes);  // exactly 16
};

// One uninterrupted use of devices by a session. `grant` counts the grants of that session (1, 2,
// ...): a device that is released when idle and acquired again later is a new lease, so its seconds
// count from 0 again and the second ranges in the ledger stay unique. A pair is never used twice.
struct LeaseId {
  SessionId session;
  uint64_t grant = 0;
  auto operator<=>(const LeaseId&) const = default;
};

// One device of a lease: the unit of metering and billing. `device` counts within the session (0 ..
// devices-1).
struct LeasedDevice {
  LeaseId lease;
  uint32_t device = 0;
  auto operator<=>(const LeasedDevice&) const = default;
};

// Nanoseconds of a monotonic clock, since any epoch that holds for the life of the process: for
// leases and bills. Cores take the time as an argument; they never read a clock.
struct MonoTime {
  int64_t ns = 0;
  auto operator<=>(const MonoTime&) const = default;
};
inline constexpr int64_t kNsPerMs = 1'000'000;

// Milliseconds since 1970 UTC, for people: stamps on rows, expiry of keys. No cost is computed from
// it.
struct WallTime {
  int64_t unix_ms = 0;
  auto operator<=>(const WallTime&) const = default;
};

// Returns ISO 8601 UTC: "2026-01-31T12:34:56Z".
std::string ToString(WallTime time);

}  // namespace outboard::gateway
