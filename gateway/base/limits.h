// Limits of the gateway's adapters: buffers, threads, timeouts, connections and transfers. The
// limits of the wire are in wire/limits.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::gateway {

// Backpressure of a session: stops reading a direction while this many bytes wait to be written,
// and resumes below half of it. A slow reader stalls its own session and never fills the gateway's
// memory.
inline constexpr size_t kQueuedBytesMax = size_t{8} << 20;
inline constexpr int kPoolThreads = 4;  // verification, hashing, disk; never steps
inline constexpr int64_t kTickMs = 200;
// Freed memory beyond this is given back to the system every kTrimTicks: a flood's, never a step's.
inline constexpr size_t kFreeBytesKept = size_t{32} << 20;
inline constexpr int64_t kTrimTicks = 25;
// From a connection to the end of its handshake, and from a stream to its first message.
inline constexpr int64_t kFirstMessageMs = 5'000;
// How often the keys of open calls are looked at: of sessions every kKeyCheckTicks, of transfers
// every kKeyCheckMs. A key that stands no more ends them within 5 s.
inline constexpr int64_t kKeyCheckTicks = 10;
inline constexpr int64_t kKeyCheckMs = 1000;
inline constexpr int64_t kKeyUseMs = 60'000;  // at most once in this time a key's use is written
inline constexpr int64_t kExecutorWordMs =
    1000;  // between the end of an executor's stream and its worker's SessionEnded, either first
inline constexpr size_t kGraphVerdictsMax = 8192;
inline constexpr int kStreamsPerConnectionMax = 256;
inline constexpr int kLocalStrangersMax = 256;  // local connections that have not authenticated yet
inline constexpr size_t kWorkerNameBytesMax = 80;
inline constexpr size_t kWorkerIdentityBytes = 32;
// Uploads in flight; the same number of downloads. A transfer that waits longer than
// kTransferStalledMs for its client is ended.
inline constexpr int kTransfersPerTenantMax = 64;
inline constexpr size_t kTransfersMax = 512;
inline constexpr int64_t kTransferStalledMs = 60'000;
// A client's stream whose reader takes nothing for so long is cut; the client may come back.
inline constexpr int64_t kReaderStalledMs = 30'000;
inline constexpr uint32_t kDevicesPerWorkerMax = 1024;

}  // namespace outboard::gateway
