// Limits of the gateway's adapters; those of the wire are in proto/limits.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::gateway {

// A direction of a session stops being read while this much waits to be written, and goes on below
// half of it: a slow reader costs a session's memory, never the gateway's.
inline constexpr size_t kQueuedBytesMax = size_t{8} << 20;
inline constexpr int kPoolThreads = 4;  // verification, hashing, disk; never steps
inline constexpr size_t kPoolJobsMax = 4096;
inline constexpr int64_t kTickMs = 200;
inline constexpr int64_t kKeyCheckTicks = 25;  // a revoked key ends its sessions within 5 s
inline constexpr int64_t kExecutorWordMs =
    300;  // a worker has so long to say why an executor's stream ended
inline constexpr size_t kGraphVerdictsMax = 8192;
inline constexpr int kStreamsPerConnectionMax = 256;
inline constexpr int kDownloadsMax = 64;        // each holds a chunk in memory
inline constexpr int kLocalStrangersMax = 256;  // connections that have not said whose they are
inline constexpr size_t kWorkerNameBytesMax = 80;
inline constexpr uint32_t kDevicesPerWorkerMax = 1024;

}  // namespace outboard::gateway
