// What the devices accept. Each number is quoted by the error that enforces it (RESOURCE_EXHAUSTED,
// or INVALID_ARGUMENT for what no device could ever take).
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::limits {

inline constexpr size_t kObjectBytesMax =
    size_t{64} << 20;  // one kernel's object: as much as a compile box may answer
inline constexpr int64_t kBufferAlignment = 64;  // a cache line, and the widest vector
inline constexpr size_t kPageBytes = 4096;
// What one kernel may copy its operands to, for each thread; the compiler's own limit is not more.
inline constexpr int64_t kScratchBytesMax = 2 << 20;
inline constexpr int kThreadsMax = 256;

}  // namespace outboard::limits
