// The file operations of the blob store. Tests override them to count calls, to make them fail, and
// to simulate a crash before any one of them.
//
// Threads: any. Errors: RESOURCE_EXHAUSTED  the disk is full
//                       NOT_FOUND           no such file
//                       UNAVAILABLE         any other error of the system
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::gateway {

// Whether an error is the disk's, full or broken: not an account's quota, nor wrong bytes.
bool IsOfDisk(const absl::Status& status);
absl::Status OfDisk(absl::Status status);  // an error of which that is true

class Disk {
 public:
  virtual ~Disk() = default;
  // Creates a file to write. The caller ends the descriptor with Close.
  virtual absl::StatusOr<int> Create(const std::string& path);
  virtual absl::Status Write(int fd, uint64_t offset, std::string_view bytes);
  virtual absl::Status Close(int fd);
  // Opens a file to read. The caller closes the descriptor.
  virtual absl::StatusOr<int> Open(const std::string& path);
  // Fills `out` from the descriptor's position on. Returns the number of bytes read; fewer than
  // out.size() at the end of the file.
  virtual absl::StatusOr<size_t> Read(int fd, std::span<char> out);
  virtual absl::Status Rename(const std::string& from, const std::string& to);
  virtual absl::Status Remove(const std::string& path);
  // Waits until a file's bytes, or a folder's names, survive a power cut.
  virtual absl::Status Sync(const std::string& path);
  // Creates a folder unless it exists. Returns true if it was created.
  virtual absl::StatusOr<bool> MakeFolder(const std::string& path);
  // Sets the file's modification time, which stores its last use across restarts.
  virtual void Touch(const std::string& path, int64_t unix_ms);

  struct Room {
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
  };
  virtual absl::StatusOr<Room> RoomAt(const std::string& folder);
};

}  // namespace outboard::gateway
