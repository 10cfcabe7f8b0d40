// Remembers the blob names of files, so that a second upload need not read them: for a version of a
// file (device, inode, size, change times), the blobs of ranges of it.
//
//   <folder>/<device>-<inode>        one file: its stamp, its ranges and their hashes, and a
//                                    SHA-256 of it all
//
// A file that was written to has another stamp and is not found. File system clocks are coarse, so
// an entry is never used for a file that changed within kFreshMs before it was read: a second
// change could leave the same time. Threads: any; several processes may share a folder (files
// appear by rename). Entries that cannot be read or written count as missing: no errors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "wire/merkle.h"

namespace outboard::files {

inline constexpr int64_t kFreshMs = 2000;

struct FileStamp {
  uint64_t device = 0, inode = 0, size_bytes = 0;
  int64_t modified_ns = 0, changed_ns = 0;  // contents; contents or metadata (ctime)
  bool operator==(const FileStamp&) const = default;
};
// Returns the stamp of an open file. Errors: UNKNOWN  fstat fails
absl::StatusOr<FileStamp> StampOf(int fd);

struct FileRange {
  uint64_t offset = 0, size_bytes = 0;
  auto operator<=>(const FileRange&) const = default;
};

class FileIndex {
 public:
  // An empty folder: finds nothing and stores nothing.
  explicit FileIndex(std::string folder) : folder_(std::move(folder)) {}
  // OUTBOARD_FILE_INDEX (empty: none), else $XDG_CACHE_HOME/outboard/files or
  // ~/.cache/outboard/files.
  static FileIndex Default();

  // Returns one name per range; nullopt if it is not known.
  std::vector<std::optional<wire::BlobName>> Find(const FileStamp& stamp,
                                                  std::span<const FileRange> ranges) const;
  // Adds entries for this version of the file; drops those of older versions. Requires that `stamp`
  // was taken before the bytes were read and was the same afterwards. `now_ns`: the wall clock,
  // before reading.
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

}  // namespace outboard::files
