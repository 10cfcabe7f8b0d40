// The executor: one session's process. Reads ClientFrames from descriptor kChildSocket, applies them in order and writes
// ServerFrames back, until the socket closes or the session ends.
#pragma once

#include <cstdint>

namespace outboard::worker {

struct ExecutorMainOptions {
  int64_t memory_bytes_max = 0;  // 0: three quarters of the machine's
  bool reference = false;        // REF=1
  int debug = 0;                 // DEBUG
};

// Returns the exit code.
int ExecutorMain(const ExecutorMainOptions& options);

// From REF and DEBUG.
ExecutorMainOptions ExecutorOptionsFromEnvironment();

}  // namespace outboard::worker
