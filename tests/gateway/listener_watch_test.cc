#include "gateway/server/listener_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
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

// The watch's own connection is then closed as soon as it is taken.
TEST(ListenerWatch, AFullTableIsNoDeadPort) {
  NoFleetService service;
  Refusals refusals([](RefusalReason, uint64_t, std::string_view) {});
  ConnectionLimits limits = DefaultConnectionLimits();
  limits.in_total = 1;
  ConnectionTable connections(limits, &refusals);
  auto listener = GrpcListener::Start("127.0.0.1:0", {&service}, &connections);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string& target = (*listener)->address();
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{
      .sin_family = AF_INET,
      .sin_port = htons(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))),
      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  while (connections.open() == 0) std::this_thread::sleep_for(milliseconds(1));
  connections.Proved("ipv4:127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  std::atomic<bool> is_dead = false;
  for (const bool has_tls : {false, true}) {
    const uint64_t before = refusals.count(RefusalReason::kConnectionsInTotal);
    WatchOptions options = kFast;
    options.failures = 1;
    options.has_tls = has_tls;
    const ListenerWatch watch(
        target, [&] { is_dead = true; }, options);
    while (!is_dead && refusals.count(RefusalReason::kConnectionsInTotal) < before + 20)
      std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(is_dead);
  close(fd);
}

TEST(ListenerWatch, OnlyAddressesOfLoopbackAreLocal) {
  for (const char* here :
       {"", "unix:/tmp/s", "localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"})
    EXPECT_TRUE(IsLocalAddress(here)) << here;
  for (const char* far : {"127.example.org:1", "127.0.0.1.example.org:1", "localhost.example.org:1",
                          "0.0.0.0:1", "[::]:1", "128.0.0.1:1"})
    EXPECT_FALSE(IsLocalAddress(far)) << far;
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
