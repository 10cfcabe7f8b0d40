#include "wire/framing.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace outboard::wire {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kReadBytes = size_t{64} << 10;

}  // namespace

std::string Framed(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  std::string bytes(kLengthBytes + size, '\0');
  const auto length = static_cast<uint32_t>(size);
  std::memcpy(bytes.data(), &length, kLengthBytes);
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(bytes.data() + kLengthBytes));
  return bytes;
}

absl::Status MessageReader::Fill(int fd) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  size_t wanted = kReadBytes;
  if (end_ >= kLengthBytes) {
    uint32_t length;
    std::memcpy(&length, buffer_.data(), kLengthBytes);
    const size_t whole = kLengthBytes + std::min<size_t>(length, message_bytes_max_);
    if (whole > end_) wanted = std::max(wanted, whole - end_);
  }
  if (buffer_.size() < end_ + wanted) buffer_.resize(end_ + wanted);
  ssize_t got;
  do {
    got = recv(fd, buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
  if (got <= 0) return absl::UnavailableError("the other side has ended");
  end_ += static_cast<size_t>(got);
  return absl::OkStatus();
}

absl::StatusOr<bool> MessageReader::Take(google::protobuf::MessageLite& message) {
  if (end_ - begin_ < kLengthBytes) return false;
  uint32_t length;
  std::memcpy(&length, buffer_.data() + begin_, kLengthBytes);
  if (length > message_bytes_max_)
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", length, " bytes; limit ", message_bytes_max_));
  if (end_ - begin_ < kLengthBytes + length) return false;
  if (!message.ParseFromArray(buffer_.data() + begin_ + kLengthBytes, static_cast<int>(length)))
    return absl::InvalidArgumentError("a message could not be parsed");
  begin_ += kLengthBytes + length;
  if (begin_ == end_) {
    begin_ = end_ = 0;
    // Frees the memory of a large message, rather than holding it for the session's life.
    if (buffer_.size() > 4 * kReadBytes) buffer_ = {};
  }
  return true;
}

void MessageReader::Clear() { begin_ = end_ = 0; }

}  // namespace outboard::wire
