// What is known of files by their bytes' names, so that a second upload need not read them: for a
// file as it stood (device, inode, size, times of change), the blobs of ranges of it.
//
//   <folder>/<device>-<inode>        one file: its stamp, its ranges and their hashes, and a
//                                    SHA-256 of it all
//
// A file that was written to since has another stamp and is not known. Clocks of file systems are
// coarse, so a file that was changed within kFreshMs of being looked at is never believed: a second
// change could leave the same time. Threads: any; several processes may share a folder (files
// appear by rename). What cannot be read or written is as if it were not known: no errors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "wire/merkle.h"

namespace outboard::blobs {

inline constexpr int64_t kFreshMs = 2000;

struct FileStamp {
  uint64_t device = 0, inode = 0, size_bytes = 0;
  int64_t modified_ns = 0, changed_ns = 0;  // contents; contents or whatever else (ctime)
  bool operator==(const FileStamp&) const = default;
};
// Of an open file. Errors: UNKNOWN  it cannot be looked at
absl::StatusOr<FileStamp> StampOf(int fd);

struct FileRange {
  uint64_t offset = 0, size_bytes = 0;
  auto operator<=>(const FileRange&) const = default;
};

class FileIndex {
 public:
  // Empty: knows nothing and remembers nothing.
  explicit FileIndex(std::string folder) : folder_(std::move(folder)) {}
  // OUTBOARD_FILE_INDEX (empty: none), else $XDG_CACHE_HOME/outboard/files or
  // ~/.cache/outboard/files.
  static FileIndex Default();

  // By range; nullopt where it is not known.
  std::vector<std::optional<wire::BlobName>> Find(const FileStamp& stamp,
                                                  std::span<const FileRange> ranges) const;
  // Adds to what is known of the file as it stands; what was known of it as it stood is forgotten.
  // `stamp` was taken before its bytes were read, and the caller has seen that it is the same
  // after. `now_ns`: the wall's time, before the reading.
  void Keep(const FileStamp& stamp, std::span<const FileRange> ranges,
            std::span<const wire::BlobName> names, int64_t now_ns) const;

 private:
  struct Known {
    FileRange range;
    wire::BlobName name;
  };
  std::string PathOf(const FileStamp& stamp) const;
  std::vector<Known> Read(const FileStamp& stamp) const;

  const std::string folder_;
};

int64_t WallNowNs();

}  // namespace outboard::blobs
