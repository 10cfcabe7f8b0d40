// Downloads blobs into files: chunks side by side over several connections, each verified as it
// comes.
//
// A file that was begun before is gone on with: chunks of it that are already right are not asked
// for, so that whatever broke off loses at most the chunks under way. Threads: blocks its caller.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "wire/blobs/transfer.h"
#include "wire/merkle.h"

namespace outboard::wire {

// What a blob consists of; its root is that of the list.
struct ChunkList {
  uint64_t size_bytes = 0;
  std::vector<Hash> chunks;
};

// Errors: NOT_FOUND; DATA_LOSS  the answer is not of this root; those of a transfer
absl::StatusOr<ChunkList> ListBlob(const BlobConnections& connections, const Hash& root,
                                   const TransferOptions& options = {});

// Of several, asked side by side; in the order of `roots`.
absl::StatusOr<std::vector<ChunkList>> ListBlobs(const BlobConnections& connections,
                                                 std::span<const Hash> roots,
                                                 const TransferOptions& options = {});

struct Downloaded {
  uint64_t received_bytes = 0;
  uint64_t kept_bytes = 0;  // that were in the file already
};

// Makes the first `blob.size_bytes` bytes of the open file `fd` those of the blob, and cuts it
// there. `fresh`: nothing that is in the file is worth looking at.
// Errors: NOT_FOUND           a chunk is not there
//         DATA_LOSS           what came is not what its hash says
//         RESOURCE_EXHAUSTED  this disk is full
//         those of a transfer (blob_transfer.h). The file may then hold any part of the blob.
absl::StatusOr<Downloaded> DownloadBlob(const BlobConnections& connections, const ChunkList& blob,
                                        int fd, bool fresh, const TransferOptions& options = {});

// A file of several blobs: each lies at its offset, and what is between them stays as it is.
struct FilePart {
  ChunkList blob;
  uint64_t offset = 0;
};
// As DownloadBlob; the file has `file_bytes` then.
absl::StatusOr<Downloaded> DownloadParts(const BlobConnections& connections,
                                         std::span<const FilePart> parts, uint64_t file_bytes,
                                         int fd, bool fresh, const TransferOptions& options = {});

}  // namespace outboard::wire
