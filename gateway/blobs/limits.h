// Limits of what a tenant stores under names. The manifest of a checkpoint travels in one message,
// as does a page of names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::gateway {

inline constexpr size_t kStoreNameBytesMax = 255;
inline constexpr uint64_t kStoreNamesMax = 65'536;   // per tenant
inline constexpr size_t kStoreNamesPerPage = 2'000;  // 2,000 * (255 + 80) bytes fit
inline constexpr int kCheckpointEntriesMax = 16'384;
inline constexpr size_t kCheckpointBytesMax = size_t{900} << 10;  // of its manifest
inline constexpr size_t kSnapshotBytesMax = size_t{64} << 20;     // of its manifest
inline constexpr size_t kSnapshotEntryBytesMax = size_t{1} << 20;

}  // namespace outboard::gateway
