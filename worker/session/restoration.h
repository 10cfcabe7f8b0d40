// A session's state back from a snapshot (proto::SessionSnapshot): asks for the manifest, then for
// the arrays that it names, and hands all of it over when the last has come.
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
#include "worker/session/answer_log.h"
#include "worker/session/blob_inbox.h"
#include "worker/session/session_state.h"

namespace outboard::worker {

class Restoration {
 public:
  // Asks `inbox`, which lives longer, for the manifest.
  Restoration(std::string manifest_root, BlobInbox* inbox);

  // `root` has come to the inbox. Whether that was the last.
  // Errors: those of the blob; DATA_LOSS  a manifest that makes no sense
  absl::StatusOr<bool> OnBlob(const std::string& root);
  // When it is complete: into a fresh state. Answers up to `received_seq` have reached the client
  // and are left out.
  absl::Status Install(SessionState& state, AnswerLog& unacknowledged, uint64_t received_seq);

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
