// Uploads blobs: asks which chunks are missing, sends those in parallel over several connections,
// then commits the blobs. Hashing, asking and sending overlap. The server verifies each chunk
// before it becomes visible.
//
// An upload that broke off can be repeated and sends only missing chunks; broken connections are
// reconnected automatically (TransferOptions). Memory: about twenty chunks, whatever the blobs'
// sizes. Threads: blocks its caller; sources are read from several threads at once.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "wire/blobs/source.h"
#include "wire/blobs/transfer.h"

namespace outboard::wire {

// Returns when all blobs are stored and committed.
// Errors: UNAVAILABLE         the connection broke, and could not be restored
//         RESOURCE_EXHAUSTED  a blob over kBlobChunksMax chunks; the cloud's disk or quota
//         UNAUTHENTICATED, CANCELLED, DEADLINE_EXCEEDED; errors of a source's read
absl::StatusOr<Uploaded> UploadBlobs(const BlobConnections& connections,
                                     std::span<const BlobSource> sources,
                                     const TransferOptions& options = {});

}  // namespace outboard::wire
