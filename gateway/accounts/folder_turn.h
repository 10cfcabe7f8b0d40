// Whose turn it is to write a data folder: a number in the accounts file, which each gateway that
// starts makes greater. A gateway whose turn is over writes no money, session, lease or receipt any
// more: the lock of the folder (gateway/server/folder_lock.h) keeps two from running side by side,
// unless its file is deleted, or the file system has no locks
// (docs/decisions/129-turns-of-a-folder.md).
//
// Threads: Guard's functions run on any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

class FolderTurn {
 public:
  // Ends the turn of whoever has it. As storage::Database::Open.
  static absl::StatusOr<FolderTurn> Take(const std::string& accounts_path);

  FolderTurn() = default;  // of no gateway: those that start have 1 and more
  // For storage::Database::GuardWrites. CANCELLED: another gateway has taken the folder since.
  std::function<absl::Status(storage::Database&)> Guard() const;

 private:
  explicit FolderTurn(int64_t number) : number_(number) {}
  int64_t number_ = 0;
};

// True of an error of Guard's, and of no other of the accounts file.
inline bool IsReplaced(const absl::Status& status) { return absl::IsCancelled(status); }

}  // namespace outboard::gateway
