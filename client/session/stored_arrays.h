// Lists the arrays stored under a name, validated, so that a program can put them by their blobs.
//
// Blocks for a round trip. Errors: those of client/files/store_client.h; INVALID_ARGUMENT for a
// name that holds a plain file, DATA_LOSS for a malformed list.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/request.h"

namespace grpc {
class Channel;
}

namespace outboard::transport {

absl::StatusOr<std::vector<StoredArray>> StoredArrays(const std::shared_ptr<grpc::Channel>& channel,
                                                      const std::string& key,
                                                      const std::string& name);

}  // namespace outboard::transport
