// Converts requests to items of the wire, without sequence numbers. Checks the properties of a
// request that are known locally; the cloud checks the rest.
//
// Errors: INVALID_ARGUMENT    an index out of range, a repetition without anything to repeat
//         RESOURCE_EXHAUSTED  a limit of wire/limits.h, with the limit and the count
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/request.h"
#include "proto/cloud.pb.h"

namespace outboard::transport {

absl::StatusOr<proto::ClientItem> RunItem(const RunRequest& request);
absl::Status CheckDims(std::span<const int64_t> dims);
// Returns a Put without its data; `dims` must pass CheckDims.
proto::ClientItem PutItem(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                          uint64_t total_bytes);
absl::StatusOr<proto::ClientItem> FetchItem(std::span<const uint64_t> handles);
absl::StatusOr<proto::ClientItem> SaveItem(std::string_view name,
                                           std::span<const SaveEntry> entries);

}  // namespace outboard::transport
