#include "tests/net/message_ends.h"

#include <algorithm>

namespace outboard::test {

namespace {
constexpr uint8_t kDataFrame = 0;
constexpr size_t kPrefixBytes = 5;  // whether it is compressed, and the length
}  // namespace

std::vector<size_t> MessageEnds::In(std::string_view bytes) {
  std::vector<size_t> ends;
  for (size_t at = 0; at < bytes.size();) {
    if (skip_ > 0) {
      const size_t skipped = std::min(skip_, bytes.size() - at);
      skip_ -= skipped;
      at += skipped;
      continue;
    }
    const auto byte = static_cast<uint8_t>(bytes[at++]);
    if (data_left_ > 0) {
      --data_left_;
      if (Data(messages_[stream_], byte)) ends.push_back(at);
      continue;
    }
    header_[header_bytes_++] = byte;
    if (header_bytes_ < header_.size()) continue;
    header_bytes_ = 0;
    const size_t length = header_[0] << 16 | header_[1] << 8 | header_[2];
    stream_ = static_cast<uint32_t>(header_[5] & 0x7f) << 24 | header_[6] << 16 | header_[7] << 8 |
              header_[8];
    (header_[3] == kDataFrame ? data_left_ : skip_) = length;
  }
  return ends;
}

bool MessageEnds::Data(Message& message, uint8_t byte) {
  if (message.prefix_bytes < kPrefixBytes) {
    // The first byte of the prefix is shifted out by the four that follow.
    message.left = message.left << 8 | byte;
    if (++message.prefix_bytes < kPrefixBytes || message.left > 0) return false;
  } else if (--message.left > 0) {
    return false;
  }
  message = {};
  return true;
}

}  // namespace outboard::test
