// Workers that were set aside, since they did what an honest one does not
// (docs/decisions/065-workers-set-aside.md). In the accounts file, so that a restart of the gateway
// keeps them and a command lifts them.
//
// Threads: any; a mutex inside. Calls read or write the disk. Errors: those of storage::Database.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/ledger/ids.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

struct SetAsideWorker {
  std::string identity;  // what the gateway knows the worker by again: a hash, in hex
  std::string name;      // as it joined last, for people
  std::string why;
  WallTime since;
};

// What the driver needs of it; the simulator and tests have one in memory.
class WorkerQuarantine {
 public:
  virtual ~WorkerQuarantine() = default;
  // Idempotent: the first reason stays.
  virtual absl::Status Add(const SetAsideWorker& worker) = 0;
  virtual absl::StatusOr<std::vector<SetAsideWorker>> Read() = 0;  // the oldest first
};

class QuarantineRows final : public WorkerQuarantine {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<QuarantineRows>> Open(
      const std::string& path, const storage::OpenOptions& options = {});

  // INVALID_ARGUMENT: an identity or text that is too long. At most kSetAsideMax are remembered:
  // RESOURCE_EXHAUSTED.
  absl::Status Add(const SetAsideWorker& worker) override;
  absl::StatusOr<std::vector<SetAsideWorker>> Read() override;
  // Of this identity, or of all of this name; returns those that were lifted.
  absl::StatusOr<std::vector<SetAsideWorker>> Lift(std::string_view identity_or_name);

 private:
  explicit QuarantineRows(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}
  absl::StatusOr<std::vector<SetAsideWorker>> ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
