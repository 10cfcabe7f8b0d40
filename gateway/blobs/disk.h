// The calls with which the blob store reads and changes files, so that tests can count them, let
// them fail, and stop the world before any one of them.
//
// Threads: any. Errors: RESOURCE_EXHAUSTED  the disk is full
//                       NOT_FOUND           no such file
//                       UNAVAILABLE         anything else that the system says
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::gateway {

class Disk {
 public:
  virtual ~Disk() = default;
  // A new file, to be written; a descriptor, which Close ends.
  virtual absl::StatusOr<int> Create(const std::string& path);
  virtual absl::Status Write(int fd, uint64_t offset, std::string_view bytes);
  virtual absl::Status Close(int fd);
  // A descriptor to read; the caller closes it.
  virtual absl::StatusOr<int> Open(const std::string& path);
  // How many bytes of `out` it filled, from the descriptor's place on: fewer where the file ends.
  virtual absl::StatusOr<size_t> Read(int fd, std::span<char> out);
  virtual absl::Status Rename(const std::string& from, const std::string& to);
  virtual absl::Status Remove(const std::string& path);
  // Waits until a file's bytes, or a folder's names, survive a power cut.
  virtual absl::Status Sync(const std::string& path);
  // A folder, if it is not there: true if it was made.
  virtual absl::StatusOr<bool> MakeFolder(const std::string& path);
  // The file's time, by which its last use is known after a restart.
  virtual void Touch(const std::string& path, int64_t unix_ms);

  struct Room {
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
  };
  virtual absl::StatusOr<Room> RoomAt(const std::string& folder);
};

}  // namespace outboard::gateway
