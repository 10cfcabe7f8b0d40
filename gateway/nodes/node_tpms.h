// Which TPM is which node: endorsement keys by their fingerprints, expected by an operator or
// proved by a node that was let in. One key is one node, and one node has one key. In the accounts
// file.
//
//   unknown --Bind without a serial number--> expected, of any --Bind--> of one --Remove--> gone
//   unknown --Bind--> of one
//
// Threads: any; a mutex inside; several processes may use one file. Calls read or write the disk.
// Errors: those of storage::Database
#pragma once

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

inline constexpr int64_t kNodeTpmsMax = 65'536;

struct NodeTpmRow {
  std::string endorsement_key;  // "sha256:..."
  std::string serial = {};      // "": whatever the machine says when it enrols first
  WallTime since = {};
};

class NodeTpms {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<NodeTpms>> Open(const std::string& path,
                                                        const storage::OpenOptions& options = {});

  // Lets in whoever proves this key, from now on; `serial`: as that node alone, unless empty. For
  // an operator who expects it, and for a node that has proved it and is let in.
  // Errors: FAILED_PRECONDITION  the key is another node's, or the node has another key
  //         INVALID_ARGUMENT     a serial number; RESOURCE_EXHAUSTED  there are kNodeTpmsMax
  absl::Status Bind(std::string_view endorsement_key, std::string_view serial, WallTime now);
  absl::StatusOr<std::optional<NodeTpmRow>> Find(std::string_view endorsement_key);
  absl::StatusOr<std::optional<NodeTpmRow>> OfSerial(std::string_view serial);
  absl::StatusOr<std::vector<NodeTpmRow>> List();  // by key
  // Of a serial number, or of an endorsement key. NOT_FOUND: there is none.
  absl::Status Remove(std::string_view serial_or_key);

 private:
  explicit NodeTpms(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}
  absl::StatusOr<std::optional<NodeTpmRow>> FindLocked(std::string_view column,
                                                       std::string_view value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
