// How long what belongs to a session goes on without a gateway: its executor keeps its state, and
// its transfers are tried again. A gateway that was started again waits 60 s for its workers.
#pragma once

#include <chrono>

namespace outboard::worker {

inline constexpr std::chrono::seconds kOrphanMost{90};

}  // namespace outboard::worker
