// Drivers that were added for machines that boot over the network: of each kernel's release the
// last that was added is given to machines that run it. In the accounts file.
//
// Threads: any; a mutex inside; several processes may use one file. Calls read or write the disk.
// Errors: those of storage::Database
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

inline constexpr int64_t kDriversMax = 256;

struct DriverRow {
  std::string digest;  // "sha256:..." of the file
  std::string kernel;  // the release that it is for, "6.1.0-49-amd64"
  uint64_t bytes = 0;
  WallTime added = {};
};

class DriverRows {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<DriverRows>> Open(const std::string& path,
                                                          const storage::OpenOptions& options = {});

  // Of one that was added before: it is the last now. RESOURCE_EXHAUSTED: there are kDriversMax.
  absl::Status Add(const DriverRow& driver);
  absl::StatusOr<std::vector<DriverRow>> List();  // the oldest first
  // What machines with this kernel get; nullopt: nothing was added for it.
  absl::StatusOr<std::optional<DriverRow>> ForKernel(std::string_view kernel);

 private:
  explicit DriverRows(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
