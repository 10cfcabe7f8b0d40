// Framing of Protobuf messages on a stream socket: each follows its length (u32, little-endian).
// Used between gateway and executor on one machine, and between a worker's processes.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::wire {

// Returns the length and the encoded message.
std::string Framed(const google::protobuf::MessageLite& message);

// Splits the bytes received on one socket into messages. Reads much at a time: a small message
// costs one system call. Threads: one at a time.
class MessageReader {
 public:
  explicit MessageReader(size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

  // Reads the available bytes without waiting. UNAVAILABLE: the other side has closed; messages
  // received before can still be taken.
  absl::Status Fill(int fd);
  // Sets `message` to the next one and returns true; false if it is not complete yet.
  // Errors: INVALID_ARGUMENT  over the size limit or malformed; the stream is unusable from here on
  absl::StatusOr<bool> Take(google::protobuf::MessageLite& message);
  void Clear();

 private:
  const size_t message_bytes_max_;
  std::string buffer_;  // its size is its capacity
  size_t begin_ = 0, end_ = 0;
};

}  // namespace outboard::wire
