#include "gateway/streams/abstract_listener.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {

namespace {
constexpr std::chrono::milliseconds kAcceptPause{10};
}  // namespace

absl::StatusOr<std::unique_ptr<AbstractListener>> AbstractListener::Listen(
    std::string name, std::function<void(int fd)> on_connection) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof address.sun_path)
    return absl::UnavailableError(absl::StrCat("a socket's name of ", name.size(), " bytes"));
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd, SOMAXCONN) != 0) {
    absl::Status status = absl::UnavailableError(
        absl::StrCat("no socket for this machine's own: ", std::strerror(errno)));
    if (fd >= 0) close(fd);
    return status;
  }
  return std::unique_ptr<AbstractListener>(
      new AbstractListener(std::move(name), fd, std::move(on_connection)));
}

AbstractListener::AbstractListener(std::string name, int fd,
                                   std::function<void(int fd)> on_connection)
    : name_(std::move(name)),
      fd_(fd),
      on_connection_(std::move(on_connection)),
      thread_([this] { Accept(); }) {}

AbstractListener::~AbstractListener() {
  stopping_ = true;
  shutdown(fd_, SHUT_RDWR);
  thread_.join();
  close(fd_);
}

void AbstractListener::Accept() {
  while (!stopping_) {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      on_connection_(fd);
    } else {  // too many open files, say: that may pass
      std::this_thread::sleep_for(kAcceptPause);
    }
  }
}

}  // namespace outboard::gateway
