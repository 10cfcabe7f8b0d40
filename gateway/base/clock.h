// Clocks and randomness that callers pass to the gateway core: monotonic time for leases and
// bills, wall time for people, and 128 random bits from the kernel for values that must not be
// guessable.
#pragma once

#include <sys/random.h>

#include <chrono>
#include <cstdlib>

#include "gateway/ledger/ids.h"

namespace outboard::gateway {

inline MonoTime MonoNow() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

inline WallTime WallNow() {
  return {std::chrono::duration_cast<std::chrono::milliseconds>(
              std::chrono::system_clock::now().time_since_epoch())
              .count()};
}

// Returns 128 random bits from the kernel. Aborts if there are none, rather than hand out guessable
// tokens.
template <typename Pair>
Pair Draw() {
  uint64_t words[2];
  if (getrandom(words, sizeof words, 0) != sizeof words) std::abort();
  return Pair{words[0], words[1]};
}

}  // namespace outboard::gateway
