// Downloads blobs into files: chunks in parallel over several connections, each verified on
// arrival.
//
// Resumes a partial file: chunks in it that are already right are not requested again, so an
// interruption loses at most the chunks in flight. Threads: blocks its caller.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "wire/blobs/transfer.h"
#include "wire/merkle.h"

namespace outboard::wire {

// The chunks of a blob; the blob's root is the Merkle root of this list.
struct ChunkList {
  uint64_t size_bytes = 0;
  std::vector<Hash> chunks;
};

// Fetches the chunk list of a blob.
// Errors: NOT_FOUND
//         DATA_LOSS  the answer does not match the root
//         those of a transfer (transfer.h)
absl::StatusOr<ChunkList> ListBlob(const BlobConnections& connections, const Hash& root,
                                   const TransferOptions& options = {});

// Fetches several lists in parallel; returns them in the order of `roots`.
absl::StatusOr<std::vector<ChunkList>> ListBlobs(const BlobConnections& connections,
                                                 std::span<const Hash> roots,
                                                 const TransferOptions& options = {});

struct Downloaded {
  uint64_t received_bytes = 0;
  uint64_t kept_bytes = 0;  // were in the file already
};

// Writes the blob to the first `blob.size_bytes` bytes of the open file `fd`, and truncates the
// file there. With `fresh`, does not check whether the file holds usable chunks.
// Errors: NOT_FOUND           a chunk does not exist
//         DATA_LOSS           received bytes do not match their hash
//         RESOURCE_EXHAUSTED  this machine's disk is full
//         those of a transfer (transfer.h). The file may then hold any part of the blob.
absl::StatusOr<Downloaded> DownloadBlob(const BlobConnections& connections, const ChunkList& blob,
                                        int fd, bool fresh, const TransferOptions& options = {});

// A blob and its offset in a file of several blobs. Bytes between the blobs are left as they are.
struct FilePart {
  ChunkList blob;
  uint64_t offset = 0;
};
// As DownloadBlob, for several parts; the file then has `file_bytes` bytes.
absl::StatusOr<Downloaded> DownloadParts(const BlobConnections& connections,
                                         std::span<const FilePart> parts, uint64_t file_bytes,
                                         int fd, bool fresh, const TransferOptions& options = {});

// As DownloadBlob into `path`. Writes "<path>.part" and renames it, so `path` is complete or
// absent.
// Errors also: UNKNOWN  the file cannot be written (the message names it)
}  // namespace outboard::wire
