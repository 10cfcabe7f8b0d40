// Finds where gRPC messages end in the bytes of an HTTP/2 connection (RFC 9113, section 4.1;
// length-prefixed messages of gRPC within DATA frames), for tests that cut there. Handles one
// direction of one connection, for any number of streams.
//
// Trusts the bytes: they come from our own programs. Padded frames, which gRPC does not send, are
// not supported.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace outboard::test {

class MessageEnds {
 public:
  // The direction from the connecting side begins with 24 bytes of preface.
  explicit MessageEnds(bool from_client) : skip_(from_client ? 24 : 0) {}

  // Returns offsets into `bytes`, which follow those of the previous calls: one past each message
  // that ends in them.
  std::vector<size_t> In(std::string_view bytes);

 private:
  struct Message {
    size_t prefix_bytes = 0;  // of the five, read
    uint32_t left = 0;
  };
  // A byte of a DATA frame's payload; true if a message ends with it.
  bool Data(Message& message, uint8_t byte);

  size_t skip_;  // of the preface, or of a frame that is not DATA
  std::array<uint8_t, 9> header_{};
  size_t header_bytes_ = 0;
  size_t data_left_ = 0;  // of a DATA frame
  uint32_t stream_ = 0;
  std::map<uint32_t, Message> messages_;  // by stream
};

}  // namespace outboard::test
