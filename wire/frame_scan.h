// Looks at an encoded ClientFrame before it is parsed: an item without content is 2 bytes on the
// wire and 50 times as many in memory, so a frame of too many is refused unread.
//
// Threads: any; no state.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"

namespace outboard::wire {

// Parses a frame of at most `bytes_max`.
// Errors: RESOURCE_EXHAUSTED  it has more bytes, or more than kFrameItemsMax items
//         INVALID_ARGUMENT    it is no frame
absl::StatusOr<proto::ClientFrame> ParseFrame(grpc::ByteBuffer& buffer, size_t bytes_max);

}  // namespace outboard::wire
