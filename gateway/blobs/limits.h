// Limits of what a tenant stores under names. The manifest of a checkpoint travels in one message,
// as does a page of names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::gateway {

inline constexpr size_t kStoreNameBytesMax = 255;
// What an object takes on the disk and in the index, however small it is; and an entry of a list.
inline constexpr uint64_t kObjectBytesMin = 4096;
inline constexpr uint64_t kListEntryBytes = 32;
// Chunks and blobs of a tenant, unless the operator says otherwise: 150 bytes of memory each. Lists
// may name twice as many chunks, 32 bytes each: 4 TiB without what two blobs share.
inline constexpr uint64_t kStoreObjectsMax = 500'000;
// Files that are removed before another call has its turn: 0.1 ms each.
inline constexpr size_t kFilesRemovedAtOnce = 32;
inline constexpr uint64_t kStoreNamesMax = 65'536;   // per tenant
inline constexpr size_t kStoreNamesPerPage = 2'000;  // 2,000 * (255 + 80) bytes fit
inline constexpr int kCheckpointEntriesMax = 16'384;
inline constexpr size_t kCheckpointBytesMax = size_t{900} << 10;  // of its manifest
inline constexpr size_t kSnapshotBytesMax = size_t{64} << 20;     // of its manifest
// Of a session's ranks, that are no snapshot yet: of several items, while one is being completed.
inline constexpr size_t kSnapshotPartsMax = 256;
inline constexpr size_t kSnapshotEntryBytesMax = size_t{1} << 20;

}  // namespace outboard::gateway
