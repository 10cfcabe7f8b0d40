// What one evaluation may cost.
#pragma once

#include <cstdint>

namespace outboard::reference_limits {

// Element operations of one run: some minutes.
inline constexpr int64_t kWorkMax = int64_t{1} << 36;
inline constexpr int64_t kBytesMax = int64_t{4} << 30;

// Larger values are computed where they are read (32 MiB of doubles).
inline constexpr int64_t kStoredElements = int64_t{1} << 22;
// Nodes, counted as a tree, that one pulled element may run through; a value over that is kept
// whatever its size. It also bounds the recursion of Pull.
inline constexpr int64_t kConeNodes = 128;
// Elements pulled at a time: positions and a few values of a tile stay in the first-level cache.
inline constexpr int64_t kTile = 1024;

}  // namespace outboard::reference_limits
