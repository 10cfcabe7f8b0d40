// Messages over a socket pair: a length in bytes (u32, little-endian), then the message. All calls
// block.
#pragma once

#include <google/protobuf/message_lite.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace outboard::worker {

// Limit of one message. Frames are at most 1 MiB; a batch of compiled kernels may be larger.
inline constexpr uint32_t kMessageBytesMax = 256u << 20;

// Errors: UNAVAILABLE        the peer has closed the socket
//         INVALID_ARGUMENT   a message that is too long or cannot be parsed
//         DEADLINE_EXCEEDED  ReadMessage only: no complete message arrived within `timeout`
absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message);
absl::Status ReadMessage(int fd, google::protobuf::MessageLite* message,
                         std::optional<std::chrono::milliseconds> timeout = std::nullopt);

// The parts of the above, for callers that interleave other reads or writes.
absl::Status WriteBytes(int fd, std::string_view bytes);
absl::Status ReadBytes(int fd, char* to, size_t count);
// Reads a message whose length has been read already.
absl::Status ReadMessageOf(
    int fd, uint32_t length, google::protobuf::MessageLite* message,
    std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt);

}  // namespace outboard::worker
