// Limits on the size of one kernel and of its code, which bound the time to compile it. Over a
// limit, compilation fails with RESOURCE_EXHAUSTED or the optimiser chooses smaller tiles.
#pragma once

#include <cstdint>

namespace outboard::limits {

inline constexpr int64_t kKernelNodesMax =
    20000;  // with its sines and the like decomposed into arithmetic
inline constexpr int64_t kKernelRangesMax = 64;  // dependence on ranges is a 64-bit mask
// Before they are merged: each merge compares all pairs of them. A schedule makes no more than
// kKernelRangesMax.
inline constexpr int64_t kWrittenRangesMax = 128;
inline constexpr int64_t kKernelSlotsMax = 4096;
inline constexpr int64_t kTilePointsMax = 128;      // values of a tile, each its own code
inline constexpr int64_t kUnrolledPointsMax = 512;  // and with the steps of a reduction
inline constexpr int64_t kTilePiecesMax = 255;      // of one range: a piece number has one byte
inline constexpr int64_t kTiledLoopsMax = 8;        // for each of eight ranges
inline constexpr int64_t kLocalBytesMax = 2 << 20;  // copies of one kernel, for each thread
inline constexpr int64_t kAffineTermsMax = 24;      // a longer sum is computed as written

}  // namespace outboard::limits
