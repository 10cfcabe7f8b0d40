// Why a lease ended. The core decides it; where the session leaves its worker, time that nobody has
// confirmed is charged or not by it. Its text is stored in the lease's row, for people.
#pragma once

#include <cstdint>
#include <string_view>

namespace outboard::gateway {

enum class LeaseEnd : uint8_t {
  kClosed,            // its client, or `outboard stop`, ended the session
  kIdle,              // the session has no work, so it has given its device back
  kAbandoned,         // its client did not come back
  kRefused,           // its client sent something that is not allowed
  kExecutorLost,      // the executor ended
  kWorkerLost,        // its executor or worker ended, or was not heard from; it goes on elsewhere
  kNoDevice,          // the session gave up waiting for one
  kNoCredit,          // nobody pays for more
  kGatewayStopped,    // in order
  kGatewayRestarted,  // the gateway before this one ended without a word of the lease
  kNotWritten,        // its row will never be on disk
  kHeld,              // no work: the session goes on to another price (HELD)
  kRunsAgain,         // work again, after HELD
  kPutAway,           // the parked session went to disk
  kResumed,           // its state alone was kept, and it waits for a device again
  kWorkerDrained,     // the worker is stopped in order, and the session goes on elsewhere
  kTakenOver,         // a client with another key has entered the session, and pays from now on
  kGatewayFault,      // the gateway met a bug of its own, or had no memory
};

// The text of the row, which files of earlier gateways have, too.
constexpr std::string_view NameOf(LeaseEnd end) {
  constexpr std::string_view kNames[] = {
      "closed",        "idle",      "abandoned",  "refused",         "executor lost",
      "worker lost",   "no device", "no credit",  "gateway stopped", "gateway restarted",
      "not written",   "held",      "runs again", "put away",        "resumed",
      "worker drained", "taken over", "gateway fault"};
  static_assert(std::size(kNames) == static_cast<size_t>(LeaseEnd::kGatewayFault) + 1);
  return kNames[static_cast<size_t>(end)];
}

}  // namespace outboard::gateway
