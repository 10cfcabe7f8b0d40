// Blobs on this machine's disk, for executors to map: by root, the least recently used go first.
//
//   <folder>/<boot id>/<hex of the root>       whole and verified
//   <folder>/<boot id>/process-XXXXXX/         of one process: what it is pulling, and folder()
//
// A file appears by rename once all of its chunks were verified. It is not synced, so only what was
// written since the machine was started is believed: other boots' folders are removed. Several
// processes may share a folder, also of several containers: each holds a lock on its own (flock),
// and what nobody holds was left by one that is gone, and is removed. A file is handed out as a
// name of its own, so that it stays for who has it when it goes from here.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/merkle.h"

namespace outboard::worker {

class BlobCache {
 public:
  // bytes_max: 0 for half of what the disk has free. `folder` is made; it is the cache's own, but
  // what is not named like a boot's is let alone.
  // Errors: UNAVAILABLE  the folder cannot be made, or is another user's
  static absl::StatusOr<std::unique_ptr<BlobCache>> Open(const std::string& folder,
                                                         uint64_t bytes_max);

  // In OUTBOARD_BLOB_CACHE, "outboard-blobs"; else a folder among this user's caches, else one
  // among the machine's temporary files; OUTBOARD_BLOB_CACHE_BYTES.
  static absl::StatusOr<std::unique_ptr<BlobCache>> OpenDefault();

  ~BlobCache();  // removes folder()
  BlobCache(const BlobCache&) = delete;
  BlobCache& operator=(const BlobCache&) = delete;

  // Makes `own`, a path on the same disk that is not there, a hard link to the blob's file, which
  // is not to be written to. Where it is not here, `pull` writes it, verified, into the open file
  // it is given; of several who want the same blob at once one pulls and the others wait.
  // Errors: RESOURCE_EXHAUSTED  larger than all that may be kept; UNAVAILABLE  the disk refuses;
  //         what `pull` returns
  absl::Status Get(const wire::Hash& root, uint64_t size_bytes, const std::string& own,
                   const std::function<absl::Status(int fd)>& pull);
  // A folder for files that end with this process's need of them; on the same disk.
  const std::string& folder() const { return process_folder_; }

 private:
  // lock: the open process_folder, held.
  BlobCache(std::string folder, std::string process_folder, int lock, uint64_t bytes_max)
      : folder_(std::move(folder)),
        process_folder_(std::move(process_folder)),
        lock_(lock),
        bytes_max_(bytes_max) {}
  std::string PathOf(const wire::Hash& root) const;
  absl::Status MakeRoom(uint64_t size_bytes);
  absl::Status Pull(const std::string& path, uint64_t size_bytes, const std::string& own,
                    const std::function<absl::Status(int fd)>& pull);

  const std::string folder_;  // of this boot
  const std::string process_folder_;
  const int lock_;
  const uint64_t bytes_max_;
  std::mutex mutex_;
  std::condition_variable pulled_;
  std::set<wire::Hash> pulling_;
};

}  // namespace outboard::worker
