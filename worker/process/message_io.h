// Messages over a socket pair: a length in bytes (u32, little-endian), then the message. Calls
// block, as long as their IoLimits say.
#pragma once

#include <google/protobuf/message.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace outboard::worker {

// Limit of one message where the sender is trusted and nothing says otherwise: a frame of at most
// 1 MiB, or a batch of compiled kernels.
inline constexpr uint32_t kMessageBytesMax = 256u << 20;

// What ends a call before it is done, and how much it takes.
struct IoLimits {
  std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt;
  // The call ends when this descriptor becomes readable, or its other side has closed; -1: none.
  int stop_fd = -1;
  uint32_t bytes_max = kMessageBytesMax;
  // Of a message that is read: counted before it is parsed (wire/field_count.h). 0: any number,
  // from a process that is trusted.
  size_t fields_max = 0;

  static IoLimits Within(std::chrono::milliseconds time) {
    return {.deadline = std::chrono::steady_clock::now() + time};
  }
};

// A call that failed may have moved a part of its message: nothing can follow it.
// Errors: UNAVAILABLE         the peer has closed the socket
//         INVALID_ARGUMENT    a message that is too long or cannot be parsed
//         RESOURCE_EXHAUSTED  a message of too many fields
//         DEADLINE_EXCEEDED   not done by the deadline
//         CANCELLED           stop_fd became readable
absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message,
                          const IoLimits& limits = {});
absl::Status ReadMessage(int fd, google::protobuf::Message* message, const IoLimits& limits = {});

// The parts of the above, for callers that interleave other reads or writes.
absl::Status WriteBytes(int fd, std::string_view bytes, const IoLimits& limits = {});
absl::Status ReadBytes(int fd, char* to, size_t count, const IoLimits& limits = {});
// Reads a message whose length has been read already.
absl::Status ReadMessageOf(int fd, uint32_t length, google::protobuf::Message* message,
                           const IoLimits& limits = {});

}  // namespace outboard::worker
