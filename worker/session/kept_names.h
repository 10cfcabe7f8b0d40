// The names that a session's program gave to arrays (Keep in proto/cloud.proto), by which another
// client finds them. A name follows its array: a Run says which of its outputs take one over. Part
// of the session's state, and of its snapshots.
//
// Threads: one. Errors: INVALID_ARGUMENT  a name twice or an id twice, no id, or an id or output
//                                         that is not there
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"

namespace outboard::worker {

class KeptNames {
 public:
  struct Name {
    std::string text;
    uint64_t handle = 0;
  };

  // These and no others. On an error nothing changes.
  absl::Status Set(const google::protobuf::RepeatedPtrField<proto::Keep::Entry>& entries);
  absl::Status Check(const proto::Run& run) const;
  // After Check: names go over to outputs of the Run.
  void Follow(const proto::Run& run);
  void AddTo(proto::SessionSnapshot& snapshot) const;

  const std::map<uint64_t, Name>& by_id() const { return names_; }

 private:
  std::map<uint64_t, Name> names_;
};

}  // namespace outboard::worker
