// Blobs on this machine's disk, for executors to map: by root, the least recently used go first.
//
//   <folder>/<boot id>/<hex of the root>       whole and verified
//   <folder>/<boot id>/part-...                being pulled
//
// A file appears by rename once all of its chunks were verified. It is not synced, so only what was
// written since the machine was started is believed: other boots' folders are removed. Several processes
// may share a folder. A file that goes while somebody has it mapped lives on for them.
//
// Who may see which blob is not known here: ask before Get. Threads: any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/merkle.h"

namespace outboard::worker {

class BlobCache {
 public:
  // bytes_max: 0 for half of what the disk has free. `folder` is made.
  // Errors: UNAVAILABLE  the folder cannot be made
  static absl::StatusOr<std::unique_ptr<BlobCache>> Open(const std::string& folder,
                                                         uint64_t bytes_max);

  // OUTBOARD_BLOB_CACHE, else a folder among this user's caches, else one among the machine's temporary
  // files; OUTBOARD_BLOB_CACHE_BYTES.
  static absl::StatusOr<std::unique_ptr<BlobCache>> OpenDefault();

  // The file of the blob. Where it is not here, `pull` writes it, verified, into the open file it is
  // given; of several who want the same blob at once one pulls and the others wait.
  // Errors: RESOURCE_EXHAUSTED  larger than all that may be kept; what `pull` returns
  absl::StatusOr<std::string> Get(const wire::Hash& root, uint64_t size_bytes,
                                  const std::function<absl::Status(int fd)>& pull);
  // The path if it is here.
  std::string Find(const wire::Hash& root) const;

  // Roots that are here since the last call, those of before the first included.
  std::vector<wire::Hash> TakeNews();

  // A folder for files that end with this process's need of them; on the same disk.
  const std::string& folder() const { return folder_; }

 private:
  BlobCache(std::string folder, uint64_t bytes_max)
      : folder_(std::move(folder)), bytes_max_(bytes_max) {}
  std::string PathOf(const wire::Hash& root) const;
  absl::Status MakeRoom(uint64_t size_bytes);
  absl::Status Pull(const std::string& path, uint64_t size_bytes,
                    const std::function<absl::Status(int fd)>& pull);

  const std::string folder_;
  const uint64_t bytes_max_;
  std::mutex mutex_;
  std::condition_variable pulled_;
  std::set<wire::Hash> pulling_;
  std::vector<wire::Hash> news_;
};

}  // namespace outboard::worker
