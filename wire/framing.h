// Protobuf messages on a stream socket, each after its length (u32, little-endian): between gateway
// and executor on one machine, and between a worker's processes.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::wire {

// The length and the message.
std::string Framed(const google::protobuf::MessageLite& message);

// What has come of messages on one socket. Reads much at a time: a small message costs one system
// call. Threads: one at a time.
class MessageReader {
 public:
  explicit MessageReader(size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

  // Reads what is there without waiting. UNAVAILABLE: the other side has ended; what came before
  // can still be taken.
  absl::Status Fill(int fd);
  // True if `message` is the next one, false if it has not come whole.
  // Errors: INVALID_ARGUMENT  one that is over the limit or cannot be read; nothing can follow it
  absl::StatusOr<bool> Take(google::protobuf::MessageLite& message);
  void Clear();

 private:
  const size_t message_bytes_max_;
  std::string buffer_;  // its size is what it has room for
  size_t begin_ = 0, end_ = 0;
};

}  // namespace outboard::wire
