// An open file whose bytes are uploaded, as a whole or by range, with its entries of the file
// index. The file stays open as long as one of its sources lives; it is read only if the cloud
// lacks a chunk. Blob names found by uploads are written to the index once, at closing, however
// many arrays there are.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/files/file_index.h"
#include "wire/blobs/source.h"

namespace outboard::files {

class OpenFile : public std::enable_shared_from_this<OpenFile> {
 public:
  // Errors: NOT_FOUND, PERMISSION_DENIED, UNKNOWN, with the path; INVALID_ARGUMENT  not a regular
  // file
  static absl::StatusOr<std::shared_ptr<OpenFile>> Open(const std::string& path,
                                                        FileIndex index = FileIndex::Default());
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  uint64_t size_bytes() const { return stamp_.size_bytes; }
  // Returns sources for `ranges`, in order; with names if they are known.
  std::vector<wire::BlobSource> Sources(std::span<const FileRange> ranges);
  // Records the names that an upload of `ranges` computed, for later uploads. Discarded if the file
  // changes before it is closed.
  void Found(std::span<const FileRange> ranges, std::span<const wire::BlobName> names);
  // Returns the first bytes, for headers; fewer if the file is shorter.
  absl::StatusOr<std::string> Head(uint64_t bytes) const { return Read(0, bytes); }
  // Returns bytes from `offset` on; fewer if the file is shorter.
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t bytes) const;

 private:
  OpenFile(int fd, FileStamp stamp, FileIndex index)
      : fd_(fd), stamp_(stamp), opened_ns_(WallNowNs()), index_(std::move(index)) {}
  const int fd_;
  const FileStamp stamp_;
  const int64_t opened_ns_;
  const FileIndex index_;
  std::mutex mutex_;
  std::vector<FileRange> found_;  // under mutex_, as names_
  std::vector<wire::BlobName> names_;
};

}  // namespace outboard::files
