// What a name holds, as a list: checked when it comes from outside, written down as a blob, and
// read again.
//
// Errors: INVALID_ARGUMENT    entries out of order or twice, a name or file name that cannot be, an
//                             array whose bytes are not those of its type and dimensions
//         RESOURCE_EXHAUSTED  a limit (gateway/blobs/limits.h)
//         DATA_LOSS           what was stored is no list
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/fleet.pb.h"
#include "proto/store.pb.h"
#include "wire/merkle.h"

namespace outboard::gateway {

absl::Status CheckCheckpoint(const proto::Checkpoint& checkpoint);

// Equal lists are equal bytes.
std::string ManifestBytes(const proto::Checkpoint& checkpoint);
absl::StatusOr<proto::Checkpoint> ReadManifest(std::string_view bytes);

// The blobs that it names, each once, sorted, with their sizes.
struct NamedBlob {
  wire::Hash root{};
  uint64_t size_bytes = 0;
};
std::vector<NamedBlob> BlobsOf(const proto::Checkpoint& checkpoint);

// Those of a session's state (SessionSnapshot in fleet.proto). DATA_LOSS also for a root that is
// none.
absl::StatusOr<std::vector<wire::Hash>> RootsOfSnapshot(std::string_view bytes);

}  // namespace outboard::gateway
