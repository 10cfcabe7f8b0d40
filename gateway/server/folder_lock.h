// One gateway per data folder. The kernel lets go of the lock when the process that holds it ends,
// however it ends; the file "gateway.lock" stays and says who held it last.
//
// Threads: one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

class FolderLock {
 public:
  // Errors: FAILED_PRECONDITION  another gateway has the folder; names its process and since when
  //         UNAVAILABLE          the lock's file cannot be written
  static absl::StatusOr<FolderLock> Take(const std::string& data_folder, WallTime now);

  FolderLock() = default;  // holds nothing
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

 private:
  explicit FolderLock(int file) : file_(file) {}
  int file_ = -1;
};

}  // namespace outboard::gateway
