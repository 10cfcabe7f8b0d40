// Limits of the devices. The error that enforces a limit quotes its number (RESOURCE_EXHAUSTED, or
// INVALID_ARGUMENT for a request that no device could ever serve).
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::limits {

inline constexpr size_t kObjectBytesMax =
    size_t{64} << 20;  // of one kernel's object: the largest reply of a compile process
inline constexpr int64_t kBufferAlignment = 64;  // a cache line, and the widest vector
// What an array takes beside its bytes: its entry in the session's tables, its shape, what the
// allocator keeps of it. Measured: 1,000,000 arrays of one byte take 305 MB, 64 of each 305 bytes
// for the block itself.
inline constexpr int64_t kBlockOverheadBytes = 256;
inline constexpr size_t kPageBytes = 4096;
// Scratch memory of one kernel, for each thread. The compiler's own limit is no larger.
inline constexpr int64_t kScratchBytesMax = 2 << 20;
inline constexpr int kThreadsMax = 256;

}  // namespace outboard::limits
