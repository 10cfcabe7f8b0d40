// The names under which tenants store blobs: rows in the accounts file, so that replacing one is a
// transaction. The contents of a name are a blob too, its manifest (Checkpoint in store.proto).
//
// Threads: any. Errors: NOT_FOUND, RESOURCE_EXHAUSTED (kStoreNamesMax), INVALID_ARGUMENT
// (CheckName), FAILED_PRECONDITION (the name is pinned), those of the file (storage/sqlite.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/ledger/ids.h"
#include "storage/sqlite.h"
#include "wire/merkle.h"

namespace outboard::gateway {

struct NameRow {
  std::string name;
  wire::Hash manifest{};
  uint64_t size_bytes = 0;  // of the blobs that it lists, each once
  uint32_t entries = 0;
  WallTime written_at;
  bool pinned = false;  // cannot be replaced or removed
};

// INVALID_ARGUMENT unless 1 to 255 letters, digits, "._-/", no ".." and no "/" at either end.
absl::Status CheckName(std::string_view name);

class Names {
 public:
  static absl::StatusOr<std::unique_ptr<Names>> Open(const std::string& path,
                                                     const storage::OpenOptions& options = {});

  absl::StatusOr<NameRow> Find(TenantId tenant, std::string_view name);
  // Returns up to `limit` names that begin with `prefix` and come after `after`, sorted.
  absl::StatusOr<std::vector<NameRow>> List(TenantId tenant, std::string_view prefix,
                                            std::string_view after, size_t limit);
  absl::StatusOr<std::vector<std::pair<TenantId, NameRow>>> All();
  absl::StatusOr<uint64_t> Count(TenantId tenant);

  // Inserts or replaces the row.
  absl::Status Set(TenantId tenant, const NameRow& row);
  absl::Status Remove(TenantId tenant, std::string_view name);
  absl::Status Pin(TenantId tenant, std::string_view name, bool pinned);

 private:
  Names(std::unique_ptr<storage::Database> db, std::unique_ptr<storage::Database> reads)
      : db_(std::move(db)), reads_(std::move(reads)) {}

  absl::Mutex mutex_;
  const std::unique_ptr<storage::Database> db_ ABSL_GUARDED_BY(mutex_);
  // For what only reads: a write waits for the disk, and for other writers.
  absl::Mutex reads_mutex_;
  const std::unique_ptr<storage::Database> reads_ ABSL_GUARDED_BY(reads_mutex_);
};

}  // namespace outboard::gateway
