// Calls of the Store service (proto/store.proto), which stores an account's blobs under names.
//
// Each call blocks for a round trip, at most kAnswerWithin; Set until its content is on the cloud's
// disk. Threads: any.
// Errors: NOT_FOUND            no such name; a blob that a list names is not there
//         INVALID_ARGUMENT     an invalid name; a malformed list (the message says why)
//         FAILED_PRECONDITION  the name is pinned
//         RESOURCE_EXHAUSTED   a quota or limit (named)
//         UNAVAILABLE, DEADLINE_EXCEEDED  no answer
//         UNAUTHENTICATED      no key, or a wrong one
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/store.pb.h"

namespace grpc {
class Channel;
}

namespace outboard::files {

class StoreClient {
 public:
  // `key` may be empty if none is required.
  StoreClient(std::shared_ptr<grpc::Channel> channel, std::string key)
      : channel_(std::move(channel)), key_(std::move(key)) {}

  absl::StatusOr<std::vector<proto::StoredName>> List(const std::string& prefix) const;
  absl::StatusOr<proto::StoreGetReply> Get(const std::string& name) const;
  absl::StatusOr<proto::StoredName> Set(const std::string& name,
                                        const proto::Checkpoint& checkpoint) const;
  absl::StatusOr<uint64_t> Remove(const std::string& name) const;  // bytes freed
  absl::Status Pin(const std::string& name, bool pinned) const;
  absl::StatusOr<proto::StoreUsageReply> Usage() const;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::string key_;
};

}  // namespace outboard::files
