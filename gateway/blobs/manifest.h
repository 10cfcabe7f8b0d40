// Manifests: the list of a name's contents. Checks one that comes from outside, encodes it as a
// blob, and decodes it again.
//
// Errors: INVALID_ARGUMENT    entries out of order or repeated, an invalid name or file name, an
//                             array whose size does not match its type and dimensions
//         RESOURCE_EXHAUSTED  a limit (gateway/blobs/limits.h)
//         DATA_LOSS           the stored bytes are no manifest
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

// Deterministic: equal checkpoints give equal bytes.
std::string ManifestBytes(const proto::Checkpoint& checkpoint);
absl::StatusOr<proto::Checkpoint> ReadManifest(std::string_view bytes);

// A blob that a checkpoint names. BlobsOf returns each once, sorted.
struct NamedBlob {
  wire::Hash root{};
  uint64_t size_bytes = 0;
};
std::vector<NamedBlob> BlobsOf(const proto::Checkpoint& checkpoint);

// Returns the roots that a session's snapshot names (SessionSnapshot in fleet.proto). Also
// DATA_LOSS: a root is malformed.
absl::StatusOr<std::vector<wire::Hash>> RootsOfSnapshot(std::string_view bytes);

}  // namespace outboard::gateway
