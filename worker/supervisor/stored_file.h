// The file into which an executor writes what is to be stored (StoreBlobs in proto/executor.proto).
// It has no name: the supervisor makes it and passes it on, so that an executor opens no file and
// makes no other, and can fill no more of the disk than one file of its session's size
// (RLIMIT_FSIZE).
//
// The executor may be hostile, and goes on writing meanwhile. Before any byte of a blob is sent
// anywhere it is hashed, and must have the root that it is named by; once the file is another, by
// its size or times, a read fails.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/blobs/source.h"
#include "wire/merkle.h"

namespace outboard::worker {

class StoredFile {
 public:
  // An empty file on the disk of `folder`.
  // Errors: UNAVAILABLE  it cannot be made there
  static absl::StatusOr<std::unique_ptr<StoredFile>> Make(const std::string& folder);
  // The same; null, and an event of the log, where it cannot be made: a session is served all the
  // same, and what it wants to store is refused.
  static std::unique_ptr<StoredFile> MakeOrNone(const std::string& folder);
  // Its space is free a little later: of a file with many holes that takes a while, and whoever
  // lets go of it does not wait.
  ~StoredFile();
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;

  int fd() const { return fd_; }

  // Returns the blob in `size_bytes` from `offset` on, with its name, which is known to be right.
  // Reads all of it, until `cancelled`. The source may be used while this object lives.
  // Errors: DATA_LOSS           the file is shorter, or has other bytes than `root` says
  //         RESOURCE_EXHAUSTED  over `bytes_max`
  //         CANCELLED
  absl::StatusOr<wire::BlobSource> Find(const wire::Hash& root, uint64_t offset,
                                        uint64_t size_bytes, uint64_t bytes_max,
                                        const std::atomic<bool>& cancelled) const;
  // Frees the space.
  void Clear() const;

 private:
  explicit StoredFile(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace outboard::worker
