// What a class that keeps tables in a file begins with: a connection of its own, which one of its
// calls uses at a time.
#pragma once

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "storage/sqlite.h"

namespace outboard::storage {

// Threads: what is derived from it locks mutex_ for as long as it uses db_.
class TableOwner {
 public:
  // From now on `guard` runs first in each write, which fails with its error
  // (Database::GuardWrites). Threads: any.
  void GuardWrites(Database::Guard guard) {
    absl::MutexLock lock(&mutex_);
    db_->GuardWrites(std::move(guard));
  }

 protected:
  explicit TableOwner(std::unique_ptr<Database> db) : db_(std::move(db)) {}
  ~TableOwner() = default;

  absl::Mutex mutex_;
  std::unique_ptr<Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::storage
