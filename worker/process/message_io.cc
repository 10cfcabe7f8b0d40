#include "worker/process/message_io.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "wire/field_count.h"
#include "wire/framing.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status Gone() { return absl::UnavailableError("the other side has ended"); }

bool IsBounded(const IoLimits& limits) { return limits.deadline || limits.stop_fd >= 0; }

// Waits until `fd` is ready for `events`, or has an error that the next call reports.
absl::Status AwaitReady(int fd, short events, const IoLimits& limits) {
  for (;;) {
    int timeout_ms = -1;
    if (limits.deadline) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(*limits.deadline - Clock::now()).count();
      timeout_ms = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
    }
    pollfd waited[] = {{fd, events, 0}, {limits.stop_fd, POLLIN, 0}};  // -1 is left out
    const int ready = poll(waited, 2, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (waited[1].revents != 0) return absl::CancelledError("stopped");
    if (waited[0].revents != 0) return absl::OkStatus();
    if (ready == 0) return absl::DeadlineExceededError("no answer in time");
  }
}

}  // namespace

absl::Status WriteBytes(int fd, std::string_view bytes, const IoLimits& limits) {
  const bool bounded = IsBounded(limits);
  while (!bytes.empty()) {
    if (bounded) OB_RETURN_IF_ERROR(AwaitReady(fd, POLLOUT, limits));
    const ssize_t n =
        send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | (bounded ? MSG_DONTWAIT : 0));
    if (n < 0 && (errno == EINTR || (bounded && errno == EAGAIN))) continue;
    if (n <= 0) return Gone();
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status ReadBytes(int fd, char* to, size_t count, const IoLimits& limits) {
  while (count > 0) {
    if (IsBounded(limits)) OB_RETURN_IF_ERROR(AwaitReady(fd, POLLIN, limits));
    const ssize_t got = read(fd, to, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Gone();
    to += got;
    count -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message,
                          const IoLimits& limits) {
  const size_t size = message.ByteSizeLong();
  if (size > limits.bytes_max)
    return absl::InvalidArgumentError(absl::StrCat("a message of ", size, " bytes"));
  return WriteBytes(fd, wire::Framed(message), limits);
}

absl::Status ReadMessage(int fd, google::protobuf::Message* message, const IoLimits& limits) {
  uint32_t length = 0;
  OB_RETURN_IF_ERROR(ReadBytes(fd, reinterpret_cast<char*>(&length), sizeof length, limits));
  return ReadMessageOf(fd, length, message, limits);
}

absl::Status ReadMessageOf(int fd, uint32_t length, google::protobuf::Message* message,
                           const IoLimits& limits) {
  if (length > limits.bytes_max)
    return absl::InvalidArgumentError(absl::StrCat("a message of ", length, " bytes"));
  std::string bytes(length, '\0');
  OB_RETURN_IF_ERROR(ReadBytes(fd, bytes.data(), length, limits));
  if (limits.fields_max > 0)
    OB_RETURN_IF_ERROR(wire::CheckFieldCount(bytes, *message->GetDescriptor(), limits.fields_max));
  if (!message->ParseFromString(bytes))
    return absl::InvalidArgumentError("a message could not be parsed");
  return absl::OkStatus();
}

}  // namespace outboard::worker
