// Which bytes of a blob a rank of a session on several devices keeps: its rows, where the gateway
// says that the array is cut (Put.parts in proto/cloud.proto). Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"

namespace outboard::worker {

struct BlobPart {
  uint64_t offset = 0;        // in the blob
  uint64_t bytes = 0;         // that exist there; the rest is padding
  uint64_t stored_bytes = 0;  // of the array that the rank has
  std::vector<int64_t> dims;  // likewise
};

// Of a Put without parts: all of it.
// Errors: INVALID_ARGUMENT  no rows to divide, a rank that is not one of the parts, sizes that
//         contradict each other
absl::StatusOr<BlobPart> PartOf(const proto::Put& put, uint32_t rank);

// Names what a Put waits for, among all that the session waits for: the blob's root, and the part.
std::string BlobKeyOf(const proto::Put& put);

}  // namespace outboard::worker
