// Limits of the gateway's data path and adapters; those of the wire are in wire/limits.h.
// Each says in its name or beside it what it counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::gateway {

// A direction of a session stops being read while this much waits to be written, and goes on below
// half of it: a slow reader costs a session's memory, never the gateway's.
inline constexpr size_t kQueuedBytesMax = size_t{8} << 20;
inline constexpr int kPoolThreads = 4;  // verification, hashing, disk; never steps
inline constexpr int64_t kTickMs = 200;
inline constexpr int64_t kKeyCheckTicks = 25;  // a revoked key ends its sessions within 5 s
inline constexpr int64_t kExecutorWordMs =
    300;  // a worker has so long to say why an executor's stream ended
inline constexpr size_t kGraphVerdictsMax = 8192;
inline constexpr int kStreamsPerConnectionMax = 256;
inline constexpr int kLocalStrangersMax = 256;  // connections that have not said whose they are
inline constexpr size_t kWorkerNameBytesMax = 80;
// Uploads, and downloads, under way. One that waits longer for its client is ended.
inline constexpr int kTransfersPerTenantMax = 64;
inline constexpr size_t kTransfersMax = 512;
inline constexpr int64_t kTransferStalledMs = 60'000;
inline constexpr uint32_t kDevicesPerWorkerMax = 1024;

}  // namespace outboard::gateway
