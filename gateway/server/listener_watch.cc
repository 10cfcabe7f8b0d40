#include "gateway/server/listener_watch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "base/host_port.h"
#include "wire/tls/handshake.h"

namespace outboard::gateway {
namespace {

using namespace std::string_view_literals;

// The preface of a client and its first frame: SETTINGS without any.
constexpr std::string_view kHello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"sv;

bool WaitFor(int fd, short events, std::chrono::milliseconds most) {
  pollfd ready{fd, events, 0};
  return poll(&ready, 1, static_cast<int>(most.count())) == 1 && (ready.revents & events) != 0;
}

// True if the other end has ended the connection: a full table does so at once (ConnectionTable),
// which takes somebody who accepts. A connection that waits in the kernel's queue stays open.
bool WasEnded(int fd) {
  char byte;
  const ssize_t count = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && (errno == ECONNRESET || errno == EPIPE));
}

// What the port says to HTTP/2 without TLS.
bool SaysHello(int fd, std::chrono::milliseconds within) {
  char byte;
  return send(fd, kHello.data(), kHello.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(kHello.size()) &&
         WaitFor(fd, POLLIN, within) && recv(fd, &byte, 1, MSG_PEEK) == 1;
}

// The end of a connection attempt that has been decided.
bool IsConnected(int fd) {
  sockaddr_in peer;
  socklen_t size = sizeof peer;
  int error = 0;
  socklen_t error_size = sizeof error;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0) return true;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) == 0 &&
         (error == 0 || error == ECONNRESET || error == EPIPE);  // it was connected before
}

// True if the port answers, and where nothing can be said: without a descriptor for the question.
bool Answers(const sockaddr_in& address, bool has_tls, std::chrono::milliseconds within) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return true;
  const bool connects =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EINPROGRESS;
  const bool is_there = connects && WaitFor(fd, POLLOUT, within) && IsConnected(fd);
  const bool answers =
      is_there && ((has_tls ? tls::ShakeHandsOn(fd, "localhost", within).speaks == tls::Speaks::kTls
                            : SaysHello(fd, within)) ||
                   WasEnded(fd));
  close(fd);
  return answers;
}

}  // namespace

ListenerWatch::ListenerWatch(const std::string& address, std::function<void()> on_dead,
                             const WatchOptions& options)
    : on_dead_(std::move(on_dead)), options_(options) {
  const std::optional<HostPort> place = SplitHostPort(address);
  in_addr host{};
  if (!place.has_value() || inet_pton(AF_INET, place->host.c_str(), &host) != 1) return;
  thread_ = std::thread([this, place = *place] { Work(place.host, place.port); });
}

ListenerWatch::~ListenerWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ListenerWatch::Work(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host == "0.0.0.0" ? "127.0.0.1" : host.c_str(), &address.sin_addr);
  int failures = 0;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, options_.every, [this] { return stopping_; })) {
    lock.unlock();
    failures = Answers(address, options_.has_tls, options_.answers_within) ? 0 : failures + 1;
    if (failures == options_.failures) return on_dead_();
    lock.lock();
  }
}

}  // namespace outboard::gateway
