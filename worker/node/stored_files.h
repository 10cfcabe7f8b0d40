// The files that an executor has written to be stored (StoreBlobs in proto/executor.proto), as its
// supervisor sees them: the executor may be hostile, and goes on writing in the folder meanwhile.
//
// A file is opened relative to the open folder, without following a link. It counts only if it is a
// regular file with one name and as large as allowed. Before any of its bytes is sent anywhere it
// is hashed, and must have the root that it is named by; a file that is another afterwards, by its
// number, size or times, fails the read. The folder's path is used by nobody but its maker.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/blobs/source.h"
#include "wire/merkle.h"

namespace outboard::worker {

class StoredFiles {
 public:
  // Errors: UNAVAILABLE  the folder cannot be opened
  static absl::StatusOr<std::unique_ptr<StoredFiles>> Open(const std::string& folder);
  ~StoredFiles();
  StoredFiles(const StoredFiles&) = delete;
  StoredFiles& operator=(const StoredFiles&) = delete;

  // Returns the blob in the file named by the hex of `root`, with its name, which is known to be
  // right; nullopt: there is none. Reads the whole file, until `cancelled`.
  // The source may be used while this object lives; a file that has changed is DATA_LOSS.
  // Errors: DATA_LOSS           no regular file, a link, or other bytes than its name says
  //         RESOURCE_EXHAUSTED  over `bytes_max`
  //         CANCELLED
  absl::StatusOr<std::optional<wire::BlobSource>> Find(const wire::Hash& root, uint64_t bytes_max,
                                                       const std::atomic<bool>& cancelled) const;
  void Remove(const wire::Hash& root) const;

 private:
  explicit StoredFiles(int folder) : folder_(folder) {}

  const int folder_;
};

}  // namespace outboard::worker
