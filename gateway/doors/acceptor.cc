#include "gateway/doors/acceptor.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/host_port.h"
#include "gateway/base/limits.h"

namespace outboard::gateway {

namespace {

constexpr int kSweepEveryMs = 500;
// How often unproved connections are asked what they sent: a fast network brings 1 MB in this time.
constexpr std::chrono::milliseconds kAskEvery{10};
constexpr int kAskingTakesOneIn = 20;  // of a processor, however many there are
constexpr int kAcceptsInTurn = 64;  // then the other listeners, and those that must end
constexpr std::chrono::milliseconds kNoDescriptorPause{10};
// As gRPC sets it from the keepalive times in gateway/server/grpc_listener.cc: how long sent bytes
// may wait for the peer's word.
constexpr int kUserTimeoutMs = 10'000;

std::string WhyNot(int error) {
  switch (error) {
    case EADDRINUSE: return "the port is in use; is another gateway running there?";
    case EADDRNOTAVAIL: return "that is no address of this machine";
    case EACCES: return "only root may use that port";
    default: return strerror(error);
  }
}

// The socket that listens there, or a negative errno.
int ListenAt(const addrinfo& at) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol);
  if (fd < 0) return -errno;
  const int on = 1, off = 0, user_timeout = kUserTimeoutMs;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // What it accepts has these too.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof user_timeout);
  if (at.ai_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, at.ai_addr, sizeof v6);
    const int only = IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) ? off : on;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  if (bind(fd, at.ai_addr, at.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  return -error;
}

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  in_port_t port = 0;
  if (address.ss_family == AF_INET) {
    port = reinterpret_cast<const sockaddr_in&>(address).sin_port;
  } else {
    port = reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  }
  return ntohs(port);
}

// As gRPC names the peer of a connection.
std::string PeerOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return absl::StrCat("ipv6:[", text, "]:", ntohs(v6.sin6_port));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const std::string& address) {
  std::optional<HostPort> place = SplitHostPort(address);
  if (!place.has_value())
    return absl::UnavailableError("write HOST:PORT with a name or address of this machine");
  std::unique_ptr<Acceptor> acceptor(new Acceptor);
  OB_RETURN_IF_ERROR(acceptor->Bind(place->host, std::to_string(place->port)));
  place->port = PortOf(acceptor->listeners_.front());
  acceptor->address_ = ToString(*place);
  acceptor->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (acceptor->wake_fd_ < 0) return absl::UnavailableError(WhyNot(errno));
  return acceptor;
}

absl::Status Acceptor::Bind(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    return absl::UnavailableError(
        "there is no such host or port; write HOST:PORT with a name or address of this machine");
  }
  int error = 0;
  for (addrinfo* at = found; at != nullptr; at = at->ai_next) {
    // Of "localhost" with any port, each address has the same one.
    if (!listeners_.empty()) {
      const in_port_t first = htons(PortOf(listeners_.front()));
      if (at->ai_family == AF_INET) {
        reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_port = first;
      } else if (at->ai_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6*>(at->ai_addr)->sin6_port = first;
      }
    }
    const int fd = ListenAt(*at);
    if (fd >= 0) listeners_.push_back(fd);
    // A name may stand for an address that this machine does not have: IPv6 may be off.
    else if (error == 0 || -fd == EADDRINUSE)
      error = -fd;
  }
  freeaddrinfo(found);
  if (listeners_.empty() || error == EADDRINUSE) return absl::UnavailableError(WhyNot(error));
  return absl::OkStatus();
}

Acceptor::~Acceptor() {
  stopping_ = true;
  if (wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
  if (thread_.joinable()) thread_.join();
  for (const int fd : listeners_) close(fd);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void Acceptor::Start(ConnectionTable* table, std::function<void(int listener_fd, int fd)> take) {
  table_ = table;
  take_ = std::move(take);
  thread_ = std::thread([this] { Work(); });
}

void Acceptor::Work() {
  std::vector<pollfd> ready{{wake_fd_, POLLIN, 0}};
  for (const int fd : listeners_) ready.push_back({fd, POLLIN, 0});
  auto sweep_at = ConnectionTable::Clock::now(), ask_at = sweep_at;
  while (!stopping_) {
    const bool asks = table_->has_unproved();
    poll(ready.data(), ready.size(), asks ? static_cast<int>(kAskEvery.count()) : kSweepEveryMs);
    for (size_t i = 1; i < ready.size(); ++i) {
      for (int accepted = 0; (ready[i].revents & POLLIN) != 0 && accepted < kAcceptsInTurn;
           ++accepted)
        if (!AcceptFrom(ready[i].fd)) break;
    }
    const auto now = ConnectionTable::Clock::now();
    if (asks && now >= ask_at) {
      table_->EndGreedy();
      const auto end = ConnectionTable::Clock::now();
      ask_at = end + std::max<ConnectionTable::Clock::duration>(kAskEvery,
                                                                (end - now) * kAskingTakesOneIn);
    }
    if (now < sweep_at) continue;
    table_->EndUnproved(now);
    sweep_at = now + std::chrono::milliseconds(kSweepEveryMs);
  }
}

// False: none waits, or none can be taken now.
bool Acceptor::AcceptFrom(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const int fd =
      accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno == ECONNABORTED || errno == EINTR) return true;
    if (errno != EAGAIN) std::this_thread::sleep_for(kNoDescriptorPause);  // that may pass
    return false;
  }
  if (table_->Add(fd, AddressKeyOf(address), PeerOf(address), ConnectionTable::Clock::now())) {
    take_(listener, fd);
  } else {
    close(fd);
  }
  return true;
}

}  // namespace outboard::gateway
