// Tokens with which new workers enrol, where a gateway asks for them (--worker-tokens): each is
// good once, for one name, and for 15 minutes. In the accounts file, which holds their hashes.
//
// Threads: any; a mutex inside. Calls read or write the disk. Errors: those of storage::Database.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/accounts/accounts.h"
#include "gateway/ledger/ids.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

inline constexpr int64_t kWorkerTokenLifeMs = 15 * 60'000;

class WorkerTokens {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<WorkerTokens>> Open(
      const std::string& path, const storage::OpenOptions& options = {});

  // A new one for a worker of this name; it is not shown again. Those that have expired are
  // forgotten.
  // INVALID_ARGUMENT: the name (gateway/base/worker_name.h)
  absl::StatusOr<Secret> Create(std::string_view name, WallTime now);
  // PERMISSION_DENIED: there is none such, it was used, it has expired, or it is for another name;
  // in one text, so that nothing can be guessed
  absl::Status Check(std::string_view token, std::string_view name, WallTime now);
  // The same, and takes it for good.
  absl::Status Spend(std::string_view token, std::string_view name, WallTime now);

 private:
  explicit WorkerTokens(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
