// The state of a session's row in the database: all that a restarted gateway knows about the
// session. The core decides it, the accounts store it.
#pragma once

#include <cstdint>

namespace outboard::gateway {

// Stored as these numbers.
enum class SessionRowState : uint8_t {
  kOpen = 1,      // a client is connected
  kDetached = 2,  // the client is disconnected, the state is retained
  kClosed = 3,    // ended by the client or by the grace time
  kLost = 4,      // its worker, or a gateway before this one, died
};

}  // namespace outboard::gateway
