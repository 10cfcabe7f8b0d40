// Messages over a socket pair: a length (u32, little-endian) and so many bytes. Blocking.
#pragma once

#include <google/protobuf/message_lite.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace outboard::worker {

// Of one message. Frames are at most 1 MiB; a batch of compiled kernels may be more.
inline constexpr uint32_t kMessageBytesMax = 256u << 20;

// Errors: UNAVAILABLE        the other side is gone
//         INVALID_ARGUMENT   a message that is too long or cannot be read
//         DEADLINE_EXCEEDED  ReadMessage only: nothing whole has come within `timeout`
absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message);
absl::Status ReadMessage(int fd, google::protobuf::MessageLite* message,
                         std::optional<std::chrono::milliseconds> timeout = std::nullopt);

// Parts of them, for what is sent or read otherwise in between.
absl::Status WriteBytes(int fd, std::string_view bytes);
absl::Status ReadBytes(int fd, char* to, size_t count);
// The message whose length has been read.
absl::Status ReadMessageOf(
    int fd, uint32_t length, google::protobuf::MessageLite* message,
    std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt);

}  // namespace outboard::worker
