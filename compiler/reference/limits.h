// Limits on the work and memory of one evaluation by the reference interpreter, and the sizes by
// which it decides between storing a value and computing it on demand.
#pragma once

#include <cstdint>

namespace outboard::reference_limits {

// Element operations of one run: some minutes.
inline constexpr int64_t kWorkMax = int64_t{1} << 36;
inline constexpr int64_t kBytesMax = int64_t{4} << 30;

// Larger values are computed on demand instead of stored (32 MiB of doubles).
inline constexpr int64_t kStoredElements = int64_t{1} << 22;
// Nodes, counted as a tree, that computing one element on demand may visit; a value over that is
// stored whatever its size. It also bounds the recursion of Pull.
inline constexpr int64_t kConeNodes = 128;
// Elements computed at a time: positions and a few values of a tile stay in the first-level cache.
inline constexpr int64_t kTile = 1024;

}  // namespace outboard::reference_limits
