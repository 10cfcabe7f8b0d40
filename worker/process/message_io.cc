#include "worker/process/message_io.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "wire/framing.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status Gone() { return absl::UnavailableError("the other side has ended"); }

absl::Status ReadExactly(int fd, char* to, size_t count,
                         std::optional<Clock::time_point> deadline) {
  while (count > 0) {
    if (deadline) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      pollfd poll_fd{fd, POLLIN, 0};
      const int ready = left > 0 ? poll(&poll_fd, 1, static_cast<int>(left)) : 0;
      if (ready == 0) return absl::DeadlineExceededError("no answer in time");
      if (ready < 0 && errno == EINTR) continue;
    }
    const ssize_t got = read(fd, to, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Gone();
    to += got;
    count -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteBytes(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Gone();
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status ReadBytes(int fd, char* to, size_t count) {
  return ReadExactly(fd, to, count, std::nullopt);
}

absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMessageBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("a message of ", size, " bytes"));
  return WriteBytes(fd, wire::Framed(message));
}

absl::Status ReadMessage(int fd, google::protobuf::MessageLite* message,
                         std::optional<std::chrono::milliseconds> timeout) {
  std::optional<Clock::time_point> deadline;
  if (timeout) deadline = Clock::now() + *timeout;
  uint32_t length = 0;
  OB_RETURN_IF_ERROR(ReadExactly(fd, reinterpret_cast<char*>(&length), sizeof length, deadline));
  return ReadMessageOf(fd, length, message, deadline);
}

absl::Status ReadMessageOf(int fd, uint32_t length, google::protobuf::MessageLite* message,
                           std::optional<Clock::time_point> deadline) {
  if (length > kMessageBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("a message of ", length, " bytes"));
  std::string bytes(length, '\0');
  OB_RETURN_IF_ERROR(ReadExactly(fd, bytes.data(), length, deadline));
  if (!message->ParseFromString(bytes))
    return absl::InvalidArgumentError("a message could not be parsed");
  return absl::OkStatus();
}

}  // namespace outboard::worker
