#include "worker/process/passed_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "wire/framing.h"
#include "worker/process/message_io.h"

namespace outboard::worker {
namespace {

absl::Status Gone() { return absl::UnavailableError("the other side has ended"); }

// Room for one descriptor, aligned as the kernel's macros want it.
union Control {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr align;
};

ssize_t Send(int fd, std::string_view bytes, int passed, int flags) {
  Control control{};
  iovec all{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &all;
  header.msg_iovlen = 1;
  if (passed >= 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    cmsghdr* const entry = CMSG_FIRSTHDR(&header);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(entry), &passed, sizeof(int));
  }
  return sendmsg(fd, &header, MSG_NOSIGNAL | flags);
}

}  // namespace

ssize_t SendSome(int fd, std::string_view bytes, int passed) {
  return Send(fd, bytes, passed, MSG_DONTWAIT);
}

absl::Status WriteMessageWithDescriptor(int fd, const google::protobuf::MessageLite& message,
                                        int passed) {
  const std::string bytes = wire::Framed(message);
  ssize_t sent;
  do {
    sent = Send(fd, bytes, passed, 0);
  } while (sent < 0 && errno == EINTR);
  if (sent <= 0) return Gone();
  return WriteBytes(fd, std::string_view(bytes).substr(static_cast<size_t>(sent)));
}

absl::Status ReadMessageWithDescriptor(int fd, google::protobuf::Message* message, int* passed) {
  *passed = -1;
  uint32_t length = 0;
  Control control{};
  iovec first{&length, 1};
  msghdr header{};
  header.msg_iov = &first;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = sizeof control.bytes;
  ssize_t got;
  do {
    got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return Gone();
  for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr;
       entry = CMSG_NXTHDR(&header, entry))
    if (entry->cmsg_level == SOL_SOCKET && entry->cmsg_type == SCM_RIGHTS)
      std::memcpy(passed, CMSG_DATA(entry), sizeof(int));
  char* const rest = reinterpret_cast<char*>(&length) + 1;
  absl::Status status = ReadBytes(fd, rest, sizeof(length) - 1);
  if (status.ok()) status = ReadMessageOf(fd, length, message);
  if (!status.ok() && *passed >= 0) close(std::exchange(*passed, -1));
  return status;
}

}  // namespace outboard::worker
