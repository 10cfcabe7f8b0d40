// Uploads blobs: asks which chunks are missing, sends those side by side over several connections,
// names the wholes. Hashing, asking and sending overlap; what is sent is verified over there before
// anybody sees it.
//
// A transfer that broke off may be made again and sends only what did not arrive; broken
// connections are made again by itself (TransferOptions). Memory: some twenty chunks, whatever the
// blobs' sizes. Threads: blocks its caller; sources are read from several threads at once.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "wire/blobs/source.h"
#include "wire/blobs/transfer.h"

namespace outboard::wire {

// Returns when all blobs are there, whole and named.
// Errors: UNAVAILABLE         the connection broke, and could not be made again
//         RESOURCE_EXHAUSTED  a blob over kBlobChunksMax chunks; the cloud's disk or quota
//         UNAUTHENTICATED, CANCELLED, DEADLINE_EXCEEDED; what a source's read returns
absl::StatusOr<Uploaded> UploadBlobs(const BlobConnections& connections,
                                     std::span<const BlobSource> sources,
                                     const TransferOptions& options = {});

}  // namespace outboard::wire
