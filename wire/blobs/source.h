// Where the bytes of a blob come from, and what an upload of some came to. Apart from the transfer
// itself (blob_upload.h), so that who only says what to upload sees no gRPC.
//
// Sizes in bytes. Threads: a source is read from several at once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "wire/merkle.h"

namespace outboard::wire {

struct BlobSource {
  uint64_t size_bytes = 0;
  // Fills `out` with the bytes from `offset` on.
  std::function<absl::Status(uint64_t offset, std::span<char> out)> read;
  // Where it is known already: then only chunks that are missing are read. One that turns out to be
  // wrong is made anew.
  std::optional<BlobName> name = {};
};
BlobSource SourceOf(std::string_view bytes);  // which outlive it
// Bytes [offset, offset + size) of an open file. Errors of reading: DATA_LOSS where it became
// shorter.
BlobSource SourceOf(int fd, uint64_t offset, uint64_t size_bytes);

struct Uploaded {
  std::vector<BlobName> names;  // of the sources, in order
  uint64_t sent_bytes = 0;      // of the blobs
  uint64_t wire_bytes = 0;      // with all that was said about them
};

struct TransferProgress {
  uint64_t total_bytes = 0;
  uint64_t moved_bytes = 0;  // sent or received
  uint64_t saved_bytes = 0;  // that were there already
  uint64_t done_bytes() const { return moved_bytes + saved_bytes; }
};

}  // namespace outboard::wire
