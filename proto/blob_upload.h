// Uploads blobs: asks which chunks are missing, sends those side by side over several connections, names
// the wholes. Hashing, asking and sending overlap; what is sent is verified over there before anybody
// sees it.
//
// A transfer that broke off may be made again and sends only what did not arrive; broken connections are
// made again by itself (TransferOptions). Memory: some twenty chunks, whatever the blobs' sizes.
// Threads: blocks its caller; sources are read from several threads at once.
#ifndef OUTBOARD_PROTO_BLOB_UPLOAD_H_
#define OUTBOARD_PROTO_BLOB_UPLOAD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/blob_transfer.h"
#include "proto/merkle.h"

namespace outboard::wire {

// Where the bytes of one blob are.
struct BlobSource {
  uint64_t size_bytes = 0;
  // Fills `out` with the bytes from `offset` on.
  std::function<absl::Status(uint64_t offset, std::span<char> out)> read;
  // Where it is known already: then only chunks that are missing are read. One that turns out to be
  // wrong is made anew.
  std::optional<BlobName> name = {};
};
BlobSource SourceOf(std::string_view bytes);  // which outlive it
// Bytes [offset, offset + size) of an open file. Errors of reading: DATA_LOSS where it became shorter.
BlobSource SourceOf(int fd, uint64_t offset, uint64_t size_bytes);

struct Uploaded {
  std::vector<BlobName> names;  // of the sources, in order
  uint64_t sent_bytes = 0;      // of the blobs
  uint64_t wire_bytes = 0;      // with all that was said about them
};

// Returns when all blobs are there, whole and named.
// Errors: UNAVAILABLE         the connection broke, and could not be made again
//         RESOURCE_EXHAUSTED  a blob over kBlobChunksMax chunks; the cloud's disk or quota
//         UNAUTHENTICATED, CANCELLED, DEADLINE_EXCEEDED; what a source's read returns
absl::StatusOr<Uploaded> UploadBlobs(const BlobConnections& connections,
                                     std::span<const BlobSource> sources,
                                     const TransferOptions& options = {});

}  // namespace outboard::wire

#endif  // OUTBOARD_PROTO_BLOB_UPLOAD_H_
