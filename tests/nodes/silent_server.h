// A server at a free port of loopback that takes every connection, reads, and answers nothing.
// Threads: one of its own.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace outboard::test {

class SilentServer {
 public:
  SilentServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof place;
    auto* const address = reinterpret_cast<sockaddr*>(&place);
    EXPECT_EQ(bind(listener_, address, length), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, address, &length), 0);
    port_ = ntohs(place.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      std::vector<int> taken;
      while (!stop.stop_requested()) {
        pollfd ready{listener_, POLLIN, 0};
        if (poll(&ready, 1, 50) != 1) continue;
        taken.push_back(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
        ++asked_;
      }
      for (const int fd : taken) close(fd);
      close(listener_);
    });
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int asked() const { return asked_; }  // connections

 private:
  const int listener_;
  uint16_t port_ = 0;
  std::atomic<int> asked_{0};
  std::jthread thread_;  // last: it uses the others
};

}  // namespace outboard::test
