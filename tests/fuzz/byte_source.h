// A fuzzer's input as a list of small decisions. What lies beyond the end is zero, so every input
// is a whole program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace outboard::test {

class ByteSource {
 public:
  ByteSource(const uint8_t* data, size_t size)
      : bytes_(reinterpret_cast<const char*>(data), size) {}
  explicit ByteSource(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }

  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte;
  }
  int Below(int n) { return Byte() % n; }  // n <= 256
  bool OneIn(int n) { return Byte() % n == 1 % n; }

  // Its length comes first, in two bytes, and is cut to what there is.
  std::string_view Block() {
    const size_t low = Byte(), length = std::min<size_t>(low + 256 * Byte(), bytes_.size());
    const std::string_view block = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return block;
  }

 private:
  std::string_view bytes_;
};

}  // namespace outboard::test
