// Images that were added, which of them each node boots, and the rollout that changes that. In the
// accounts file, by which the commands, the boot server and the gateway share it.
//
//   image:  Add --> added --a node serves under it, NoteServed--> served
//   boot:   Use, a rollout's kKeepImage: each boot of those nodes gets that image
//           a rollout's kTryImage: the next boot gets the new one, each after it the old one, until
//           the node has served under it
//
// A pattern of serial numbers has `*` for any text; of several that fit a node the longest counts,
// and what a rollout says of a node goes before all of them.
//
// Threads: any; a mutex inside; several processes may use one file. Calls read or write the disk.
// Errors: those of storage::Database
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/nodes/rollout.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

inline constexpr int64_t kImagesMax = 256;
inline constexpr int64_t kRolloutWithinMinMs = 10'000, kRolloutWithinMaxMs = 3'600'000;

struct ImageRow {
  std::string digest;  // "sha256:..." of its SHA256SUMS
  std::string kernel;  // its release, "6.1.0-49-amd64"
  uint64_t bytes = 0;
  WallTime added = {};
  std::optional<WallTime> served = {};  // since a node first served under it
};

struct ImageUse {
  std::string nodes;  // a pattern
  std::string image;
};

struct BootImageChoice {
  std::string image;   // digest
  bool on_trial = false;  // its next boot gets another, unless it serves
  int64_t within_ms = 0;  // of one on trial: it starts again where it has not joined by then
};

// Errors: INVALID_ARGUMENT  letters, digits, '.', '_', '-' and '*' are one
absl::Status CheckNodePattern(std::string_view pattern);
bool FitsNodePattern(std::string_view pattern, std::string_view serial);

class ImageRows {
 public:
  // Opens or creates. FAILED_PRECONDITION: written by a newer version of this program.
  static absl::StatusOr<std::unique_ptr<ImageRows>> Open(const std::string& path,
                                                         const storage::OpenOptions& options = {});

  // ---- for operators

  // Idempotent. RESOURCE_EXHAUSTED: there are kImagesMax.
  absl::Status Add(const ImageRow& image);
  absl::StatusOr<std::vector<ImageRow>> List();  // the oldest first
  absl::StatusOr<std::vector<ImageUse>> Uses();
  // Nodes that fit boot it from now on, whenever they do.
  // Errors: INVALID_ARGUMENT     a pattern
  //         NOT_FOUND            no such image was added
  //         FAILED_PRECONDITION  a rollout is under way
  absl::Status Use(const std::string& image, const std::string& nodes, WallTime now);
  // `images_now`: of the nodes that are to get another image, the one that each runs.
  // Errors: INVALID_ARGUMENT     a pattern, a share, a time
  //         NOT_FOUND            no such image was added, or no node is to get it
  //         FAILED_PRECONDITION  no node has served it yet, or a rollout is under way: which
  absl::StatusOr<Rollout> Begin(Rollout rollout,
                                const std::map<std::string, std::string>& images_now, WallTime now);
  // NOT_FOUND: there was none, or it was taken back already.
  absl::StatusOr<Rollout> RollBack();
  absl::StatusOr<std::optional<Rollout>> LastRollout();

  // ---- for the boot server

  // What this node boots; nullopt: nothing was said of it. `takes`: it boots now.
  absl::StatusOr<std::optional<BootImageChoice>> ChooseBoot(std::string_view serial, bool takes);

  // ---- for the gateway

  absl::Status NoteServed(std::string_view image, WallTime now);
  // Steps the last rollout unless it is settled, and keeps what comes of it: what is returned is
  // still to be done, a restart or a power cycle.
  struct Stepped {
    std::vector<RolloutAction> actions = {};
    std::optional<Rollout> changed = {};  // its state, or a node's, is another than before
  };
  absl::StatusOr<Stepped> StepRollout(const std::map<std::string, NodeSeen>& seen, WallTime now);

 private:
  explicit ImageRows(std::unique_ptr<storage::Database> db) : db_(std::move(db)) {}
  absl::StatusOr<std::optional<ImageRow>> Find(std::string_view digest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::optional<Rollout>> ReadRollout() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteRollout(const Rollout& rollout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNoneUnderWay() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteUse(const std::string& image, const std::string& nodes, WallTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::unique_ptr<storage::Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
