// Sources, results and progress of an upload. Separate from the transfer itself (upload.h), so that
// code which only names its sources does not include gRPC.
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
  // The name, if it is known already: then only missing chunks are read. A wrong name is detected
  // and computed again.
  std::optional<BlobName> name = {};
};
BlobSource SourceOf(std::string_view bytes);  // `bytes` must outlive the source
// Returns a source of the bytes [offset, offset + size_bytes) of an open file. Its read fails with
// DATA_LOSS if the file became shorter.
BlobSource SourceOf(int fd, uint64_t offset, uint64_t size_bytes);

struct Uploaded {
  std::vector<BlobName> names;  // of the sources, in order
  uint64_t sent_bytes = 0;      // of chunks
  uint64_t wire_bytes = 0;      // of chunks, requests and replies
};

struct TransferProgress {
  uint64_t total_bytes = 0;
  uint64_t moved_bytes = 0;  // sent or received
  uint64_t saved_bytes = 0;  // not transferred: already at the destination
  uint64_t done_bytes() const { return moved_bytes + saved_bytes; }
};

}  // namespace outboard::wire
