// Restores a session's state from a snapshot (proto::SessionSnapshot): requests the manifest, then
// the arrays that it names, and installs all of it when the last has arrived.
//
// Equal arrays of several handles are one array, as they may have been. Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/fleet.pb.h"
#include "worker/session/blob_inbox.h"
#include "worker/session/session_state.h"
#include "worker/session/unacknowledged_answers.h"

namespace outboard::worker {

class Restoration {
 public:
  // Asks `inbox`, which lives longer, for the manifest.
  Restoration(std::string manifest_root, BlobInbox* inbox);

  // Call when `root` has arrived in the inbox. Returns true if that was the last blob.
  // Errors: those of the blob; DATA_LOSS  a malformed manifest
  absl::StatusOr<bool> OnBlob(const std::string& root);
  // Installs the complete snapshot in a fresh state. Skips answers up to `received_seq`, which have
  // reached the client.
  absl::Status Install(SessionState& state, UnacknowledgedAnswers& unacknowledged,
                       uint64_t received_seq);

  const proto::SessionSnapshot& snapshot() const { return snapshot_; }

 private:
  struct Awaited {
    std::string key;
    DType dtype;
    std::vector<int64_t> dims;
  };

  absl::Status ReadManifest(absl::StatusOr<runtime::DeviceBuffer> manifest);
  template <typename Entry>  // Held or Answer
  absl::Status Ask(const Entry& entry);
  // Of an entry: which bytes, and as what.
  template <typename Entry>
  static std::string KeyOf(const Entry& entry);

  const std::string manifest_root_;
  BlobInbox* const inbox_;
  proto::SessionSnapshot snapshot_;
  absl::flat_hash_map<std::string, DeviceArrayPtr> arrays_;         // by KeyOf; nullptr: awaited
  absl::flat_hash_map<std::string, std::vector<Awaited>> awaited_;  // by root
};

}  // namespace outboard::worker
