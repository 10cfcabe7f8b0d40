#include "gateway/server/listener_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>

#include "gateway/server/grpc_listener.h"
#include "gateway/server/services.h"

namespace outboard::gateway {
namespace {

using std::chrono::milliseconds;

constexpr WatchOptions kFast{.every = milliseconds(5), .answers_within = milliseconds(2'000)};

TEST(ListenerWatch, APortThatNobodyServesIsNoticed) {
  // Connections reach the kernel's queue, and nobody takes them.
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 16), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  std::promise<void> dead;
  WatchOptions options = kFast;
  options.answers_within = milliseconds(20);
  const ListenerWatch watch(
      "127.0.0.1:" + std::to_string(ntohs(address.sin_port)), [&] { dead.set_value(); }, options);
  dead.get_future().get();  // else the test's limit of time
  close(fd);
}

TEST(ListenerWatch, AServedPortIsLeftInPeace) {
  NoFleetService service;
  for (const std::string host : {"127.0.0.1", "0.0.0.0"}) {
    Refusals refusals;
    ConnectionTable connections(DefaultConnectionLimits(), &refusals);
    auto listener = GrpcListener::Start(host + ":0", {&service}, &connections);
    ASSERT_TRUE(listener.ok()) << listener.status();
    bool is_dead = false;
    {
      WatchOptions options = kFast;
      options.failures = 1;
      const ListenerWatch watch((*listener)->address(), [&] { is_dead = true; }, options);
      std::this_thread::sleep_for(milliseconds(200));  // some questions
    }
    EXPECT_FALSE(is_dead) << host;
  }
}

TEST(ListenerWatch, WhatHasNoPortIsNotWatched) {
  for (const char* address : {"", "unix:/tmp/s", "localhost:1", "[::1]:1"}) {
    WatchOptions options = kFast;
    options.failures = 1;
    const ListenerWatch watch(
        address, [&] { ADD_FAILURE() << address; }, options);
    std::this_thread::sleep_for(milliseconds(20));
  }
}

}  // namespace
}  // namespace outboard::gateway
