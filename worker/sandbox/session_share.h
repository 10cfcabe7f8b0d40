// What a session gets of its machine: limits of a running executor, which its supervisor sets from
// outside when the session begins. Threads: any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace outboard::worker {

// What an executor may hold besides its session's tensors: limits::kExecutorOwnBytes, and a stack
// for each core.
uint64_t ExecutorOwnBytes();

// When a session of this limit begins in the process: from now on what it can write in memory is at
// most its session's and ExecutorOwnBytes(), all that it has mapped at most
// limits::kReservedAddressBytes more, and no file that it writes is larger than its session. Where
// the device has a driver (NeedsDriver), which reserves address space as it likes, only what can be
// written is limited. No effect in a sanitizer's build.
// Errors: UNAVAILABLE  the process has ended
absl::Status LimitSessionMemory(pid_t pid, uint64_t session_bytes_max);

// Moves all threads of the process, and those that they will make, to these cores.
// Errors: UNAVAILABLE  the process has ended
absl::Status MoveToCores(pid_t pid, const std::vector<int>& cores);

}  // namespace outboard::worker
