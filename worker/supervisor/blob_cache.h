// A cache of blobs on this machine's disk, for executors to map: by account and root, with eviction
// of the least recently used.
//
//   <folder>/<boot id>/<hex of a name>         complete and verified; the name is a hash of the
//                                              root and of the account whose copy it is
//   <folder>/<boot id>/process-XXXXXX/         of one process: downloads in flight, and folder()
//
// A file appears by rename once all of its chunks are verified. Files are not synced to disk, so
// only those written since the machine booted are trusted: folders of other boots are removed.
// Several processes may share a folder, even across containers: each holds a lock (flock) on its
// process folder, and unlocked process folders, left by dead processes, are removed. Get hands out
// an open file, so an evicted one stays available to its users.
//
// The cache does not check access rights: the caller does, before Get. Threads: any.
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
  // bytes_max: 0 for half of the free disk space. Creates `folder`, which the cache owns, except
  // that it does not touch entries that are not named like a boot id.
  // Errors: UNAVAILABLE  the folder cannot be created, or belongs to another user
  static absl::StatusOr<std::unique_ptr<BlobCache>> Open(const std::string& folder,
                                                         uint64_t bytes_max);

  // Opens "outboard-blobs" in OUTBOARD_BLOB_CACHE, else in this user's cache folder, else among
  // the machine's temporary files. Size limit: OUTBOARD_BLOB_CACHE_BYTES.
  static absl::StatusOr<std::unique_ptr<BlobCache>> OpenDefault();

  ~BlobCache();  // removes folder()
  BlobCache(const BlobCache&) = delete;
  BlobCache& operator=(const BlobCache&) = delete;

  // Returns the blob's file, open for reading only; the caller closes it. If the blob is not
  // cached, `pull` writes it, verified, into the open file `fd`. Of several concurrent calls for
  // the same blob one pulls and the others wait.
  // Errors: RESOURCE_EXHAUSTED  larger than the whole cache
  //         UNAVAILABLE         the disk failed
  //         and those of `pull`
  // `owner`: whose copy it is. Nobody finds what another has pulled, so that the time of an answer
  // does not tell what that is.
  absl::StatusOr<int> Get(const std::string& owner, const wire::Hash& root, uint64_t size_bytes,
                          const std::function<absl::Status(int fd)>& pull);
  // A folder for temporary files of this process; on the same disk.
  const std::string& folder() const { return process_folder_; }

 private:
  // lock: a descriptor of process_folder that holds the flock.
  BlobCache(std::string folder, std::string process_folder, int lock, uint64_t bytes_max)
      : folder_(std::move(folder)),
        process_folder_(std::move(process_folder)),
        lock_(lock),
        bytes_max_(bytes_max) {}
  std::string PathOf(const wire::Hash& name) const;
  absl::Status MakeRoom(uint64_t size_bytes);
  absl::StatusOr<int> Pull(const std::string& path, uint64_t size_bytes,
                           const std::function<absl::Status(int fd)>& pull);

  const std::string folder_;  // of this boot
  const std::string process_folder_;
  const int lock_;
  const uint64_t bytes_max_;
  std::mutex mutex_;
  std::condition_variable pulled_;
  std::set<wire::Hash> pulling_;  // names of files
};

}  // namespace outboard::worker
