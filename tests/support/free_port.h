// A port for a program that takes no port 0, or whose port must be known before it starts.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace outboard::test {

// Returns a port of 127.0.0.1 or ::1 that was free a moment ago; -1 where there is no such address
// or no free port. Each call of a process returns another one. Below 32,768, from where on the
// system gives ports to others at any time. Threads: one.
inline int FreePort(std::string_view host = "127.0.0.1") {
  constexpr int kPortsFrom = 20'000, kPorts = 10'000;
  constexpr int kApart = 37;  // tests side by side, whose pids follow each other, do not meet
  static int next = static_cast<int>(static_cast<long long>(getpid()) * kApart % kPorts);
  const bool v6 = host == "::1";
  for (int tried = 0; tried < kPorts; ++tried) {
    const int port = kPortsFrom + next++ % kPorts;
    const int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    sockaddr_in6 address6{.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    address6.sin6_port = htons(static_cast<uint16_t>(port));
    sockaddr_in address4{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    address4.sin_port = address6.sin6_port;
    const int bound = v6 ? bind(fd, reinterpret_cast<sockaddr*>(&address6), sizeof address6)
                         : bind(fd, reinterpret_cast<sockaddr*>(&address4), sizeof address4);
    const int error = errno;
    close(fd);
    if (bound == 0) return port;
    if (error != EADDRINUSE) return -1;
  }
  return -1;
}

}  // namespace outboard::test
