// The state of a session's row in the database, which is all that a restarted gateway knows of it.
// The core decides it, the accounts store it.
#pragma once

#include <cstdint>

namespace outboard::gateway {

// Stored as these numbers.
enum class SessionRowState : uint8_t {
  kOpen = 1,      // with a client
  kDetached = 2,  // the client is gone, the state is retained
  kClosed = 3,    // ended by the client or by the grace time
  kLost = 4,      // its worker, or a gateway before this one, died
};

}  // namespace outboard::gateway
