// Counts what was refused at the doors, by reason, and logs each reason at most once a minute: a
// flood of refused calls must not become a flood of lines.
//
// Threads: any.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace outboard::gateway {

enum class RefusalReason {
  kConnectionsOfAddress,  // more connections than an address may have
  kConnectionsInTotal,    // no descriptor is left for another
  kNoKeyInTime,           // a connection that showed no key in time
  kBytesBeforeKey,        // a connection that sent too much before a key was good
  kWrongKey,              // a key that is not accepted
  kWrongKeysOfAddress,    // not looked at: its address has too many wrong ones
  kCallsOfAccount,        // more calls at a time than an account may have
  kStreamsOfAccount,      // more streams
  kOpeningsOfAccount,     // more openings within a minute
};
inline constexpr size_t kRefusalReasons = 9;

// As in metrics and logs: "connections_of_address".
std::string_view NameOf(RefusalReason reason);

class Refusals {
 public:
  using Clock = std::chrono::steady_clock;
  // Writes one line: `count` refusals since the one before, the last of them of `last`.
  using Log = std::function<void(RefusalReason reason, uint64_t count, std::string_view last)>;
  // `now`: of a test.
  explicit Refusals(Log log = {}, std::function<Clock::time_point()> now = Clock::now);

  // `whose` appears in the log: an address or an account number, never a key.
  void Count(RefusalReason reason, std::string_view whose);
  uint64_t count(RefusalReason reason) const;

 private:
  struct Entry {
    uint64_t count = 0;
    uint64_t logged = 0;  // the count at the last line
    Clock::time_point logged_at{};
  };

  const Log log_;
  const std::function<Clock::time_point()> now_;
  mutable std::mutex mutex_;
  std::array<Entry, kRefusalReasons> entries_;
};

}  // namespace outboard::gateway
