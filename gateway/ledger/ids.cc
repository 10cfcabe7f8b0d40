#include "gateway/ledger/ids.h"

#include "absl/time/time.h"

namespace outboard::gateway {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string SessionId::Hex() const {
  std::string hex(32, '0');
  for (int i = 0; i < 16; ++i) {
    hex[i] = kDigits[(hi >> (60 - 4 * i)) & 15];
    hex[16 + i] = kDigits[(lo >> (60 - 4 * i)) & 15];
  }
  return hex;
}

std::string SessionId::Bytes() const {
  std::string bytes(16, '\0');
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(hi >> (56 - 8 * i));
    bytes[8 + i] = static_cast<char>(lo >> (56 - 8 * i));
  }
  return bytes;
}

std::optional<SessionId> SessionId::FromHex(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  SessionId id;
  for (size_t i = 0; i < 32; ++i) {
    const int value = DigitValue(hex[i]);
    if (value < 0) return std::nullopt;
    uint64_t& half = i < 16 ? id.hi : id.lo;
    half = half << 4 | static_cast<uint64_t>(value);
  }
  return id;
}

std::optional<SessionId> SessionId::FromBytes(std::string_view bytes) {
  if (bytes.size() != 16) return std::nullopt;
  SessionId id;
  for (size_t i = 0; i < 16; ++i) {
    uint64_t& half = i < 8 ? id.hi : id.lo;
    half = half << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return id;
}

std::string ToString(WallTime time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(time.unix_ms),
                          absl::UTCTimeZone());
}

}  // namespace outboard::gateway
