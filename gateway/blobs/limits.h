// Limits of what a tenant keeps under names. A checkpoint's list and a page of names travel in one
// message each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::gateway {

inline constexpr size_t kStoreNameBytesMax = 255;
inline constexpr uint64_t kStoreNamesMax = 65'536;   // of a tenant
inline constexpr size_t kStoreNamesPerPage = 2'000;  // 2,000 * (255 + 80) bytes fit
inline constexpr int kCheckpointEntriesMax = 16'384;
inline constexpr size_t kCheckpointBytesMax = size_t{900} << 10;  // of its list
inline constexpr size_t kSnapshotBytesMax = size_t{64} << 20;     // of its list
inline constexpr size_t kSnapshotEntryBytesMax = size_t{1} << 20;

}  // namespace outboard::gateway
