// The time for which a session survives on a worker without a gateway: its executor keeps its
// state, and its transfers are retried. A restarted gateway waits 60 s for its workers.
#pragma once

#include <chrono>

namespace outboard::worker {

inline constexpr std::chrono::seconds kOrphanMost{90};

}  // namespace outboard::worker
