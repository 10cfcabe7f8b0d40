// What operators ask of nodes that are here, until the gateway has told them; and how the last join
// test of each node ended. In the accounts file.
//
// Threads: any; a mutex inside; several processes may use one file. Calls read or write the disk.
// Errors: those of storage::Database; INVALID_ARGUMENT  a serial number (CheckNodeSerial)
#pragma once

#include <map>
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

enum class NodeOrder {
  kDrain,       // takes no session any more until it starts again; hands its sessions on
  kRestart,     // hands them on, and starts again through firmware
  kQuarantine,  // stays joined and gets no session until it is lifted
};
const char* ToString(NodeOrder order);

// An order that was asked for and, as far as is known, not told yet.
struct NodeOrderRow {
  std::string serial;
  NodeOrder order = NodeOrder::kDrain;
  std::string why;
  WallTime asked = {};
};

struct JoinTest {
  bool passed = false;
  std::string why;    // it did not
  std::string image;  // that the node ran, "sha256:..."; "": it did not say
  WallTime at = {};
};

// An order that nobody could be told within this time is forgotten: a node that comes back tomorrow
// is not restarted by what was meant today.
inline constexpr int64_t kOrderLifeMs = 60'000;

class NodeOrders {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<NodeOrders>> Open(const std::string& path,
                                                          const storage::OpenOptions& options = {});

  // A later order of a node replaces one that was not told yet.
  absl::Status Ask(const NodeOrderRow& order);
  absl::StatusOr<std::vector<NodeOrderRow>> Pending(WallTime now);
  absl::Status Told(const NodeOrderRow& order);

  absl::Status NoteTest(std::string_view serial, const JoinTest& test);
  absl::StatusOr<std::map<std::string, JoinTest>> Tests();  // by serial number
  absl::Status Forget(std::string_view serial);

 private:
  explicit NodeOrders(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
