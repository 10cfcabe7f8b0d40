// Each fault of the proxy, on plain sockets. Times are only compared from below: nothing arrives
// early.
#include "tests/net/fault_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "tests/support/temp_folder.h"

namespace outboard::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A blocking socket; reads wait for 20 s at most.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) { Patience(milliseconds(20000)); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() { Close(); }

  void Patience(milliseconds time) {
    const timeval limit = {static_cast<time_t>(time.count() / 1000),
                           static_cast<suseconds_t>(time.count() % 1000 * 1000)};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  bool connected() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  // So many bytes, or what comes before the end.
  std::string Receive(size_t length) {
    std::string bytes(length, '\0');
    size_t got = 0;
    while (got < length) {
      const ssize_t n = recv(fd_, bytes.data() + got, length - got, 0);
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    bytes.resize(got);
    return bytes;
  }
  bool AtEnd() {
    char byte;
    return recv(fd_, &byte, 1, 0) == 0;
  }
  // That nothing comes can only be seen by waiting for it.
  bool Silent() {
    Patience(milliseconds(30));
    char byte;
    const bool silent = recv(fd_, &byte, 1, 0) < 0 && errno == EAGAIN;
    Patience(milliseconds(20000));
    return silent;
  }
  void EndSending() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

sockaddr_storage AddressOf(const std::string& text, socklen_t& length) {
  sockaddr_storage storage{};
  if (text.starts_with("unix:")) {
    auto* const out = reinterpret_cast<sockaddr_un*>(&storage);
    out->sun_family = AF_UNIX;
    std::strncpy(out->sun_path, text.c_str() + 5, sizeof out->sun_path - 1);
    length = sizeof *out;
  } else {
    auto* const out = reinterpret_cast<sockaddr_in*>(&storage);
    out->sin_family = AF_INET;
    out->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    out->sin_port = htons(static_cast<uint16_t>(std::stoul(text.substr(text.rfind(':') + 1))));
    length = sizeof *out;
  }
  return storage;
}

class FaultProxyTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    unix_ = std::string(GetParam()) == "unix";
    target_ = unix_ ? "unix:" + folder_ / "target" : "127.0.0.1:0";
    socklen_t length;
    sockaddr_storage address = AddressOf(target_, length);
    listener_ = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    ASSERT_EQ(listen(listener_, 16), 0);
    if (!unix_) {
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
      target_ =
          "127.0.0.1:" + std::to_string(ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port));
    }
    proxy_ =
        std::make_unique<FaultProxy>(target_, unix_ ? "unix:" + folder_ / "proxy" : "127.0.0.1:0");
  }
  void TearDown() override { close(listener_); }

  Socket Connect() {
    socklen_t length;
    const sockaddr_storage address = AddressOf(proxy_->address(), length);
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return Socket(fd);
    close(fd);
    return Socket(-1);
  }
  Socket Accept() { return Socket(accept(listener_, nullptr, nullptr)); }

  // Both ends of a connection through the proxy.
  struct Pair {
    Socket client, server;
  };
  Pair Open() {
    Socket client = Connect();
    return {std::move(client), Accept()};
  }

  static std::string Random(size_t length) {
    std::mt19937_64 random(length);
    std::string bytes(length, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  }

  TempFolder folder_;
  bool unix_ = false;
  std::string target_;
  int listener_ = -1;
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_P(FaultProxyTest, BytesComeWholeAndInOrderWhateverTheJitter) {
  for (const Shape& shape : {Shape{}, Shape{.jitter = milliseconds(2)}}) {
    proxy_->SetShape(Way::kUp, shape);
    proxy_->SetShape(Way::kDown, shape);
    auto [client, server] = Open();
    const std::string up = Random(3 << 20), down = Random(2 << 20);
    std::thread sender([&, &client = client] { client.Send(up); });
    std::thread answer([&, &server = server] { server.Send(down); });
    std::string up_got;
    std::thread reader([&, &server = server] { up_got = server.Receive(up.size()); });
    EXPECT_EQ(client.Receive(down.size()), down);
    for (std::thread* thread : {&sender, &answer, &reader}) thread->join();
    EXPECT_EQ(up_got, up);
  }
  EXPECT_EQ(proxy_->counters().bytes_up, 2u * (3 << 20));
  EXPECT_EQ(proxy_->counters().bytes_down, 2u * (2 << 20));
  EXPECT_EQ(proxy_->counters().cut, 0u);
}

TEST_P(FaultProxyTest, AnEndIsPassedOnBehindTheBytes) {
  proxy_->SetShape(Way::kUp, {.delay = milliseconds(5)});
  auto [client, server] = Open();
  client.Send("last");
  client.EndSending();
  EXPECT_EQ(server.Receive(100), "last");
  server.Send("answer");  // half of it is still open
  EXPECT_EQ(client.Receive(6), "answer");
  server.Close();
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(Eventually([&] { return proxy_->counters().open == 0; }));
}

TEST_P(FaultProxyTest, NothingIsEarly) {
  auto [client, server] = Open();
  proxy_->SetRoundTrip(milliseconds(40));
  const auto begin = Clock::now();
  client.Send("ping");
  EXPECT_EQ(server.Receive(4), "ping");
  EXPECT_GE(Clock::now() - begin, milliseconds(20));
  server.Send("pong");
  EXPECT_EQ(client.Receive(4), "pong");
  EXPECT_GE(Clock::now() - begin, milliseconds(40));
}

TEST_P(FaultProxyTest, ANewConnectionTakesARoundTripMore) {
  proxy_->SetRoundTrip(milliseconds(20));
  const auto begin = Clock::now();
  auto [client, server] = Open();
  client.Send("ping");
  EXPECT_EQ(server.Receive(4), "ping");
  EXPECT_GE(Clock::now() - begin, milliseconds(30));
}

TEST_P(FaultProxyTest, ARateIsKept) {
  auto [client, server] = Open();
  proxy_->SetShape(Way::kDown, {.bytes_per_s = 10'000'000});
  const auto begin = Clock::now();
  server.Send(std::string(400'000, 'x'));
  EXPECT_EQ(client.Receive(400'000).size(), 400'000u);
  EXPECT_GE(Clock::now() - begin, milliseconds(40));
}

TEST_P(FaultProxyTest, ACutIsAtTheByte) {
  const std::string bytes = Random(300'000);
  for (const size_t at : {0, 1, 65'535, 65'536, 65'537, 200'000}) {
    for (const Way way : {Way::kUp, Way::kDown}) {
      proxy_->CutAfter(way, at);
      auto [client, server] = Open();
      Socket& from = way == Way::kUp ? client : server;
      Socket& to = way == Way::kUp ? server : client;
      std::thread sender([&] { from.Send(bytes); });
      EXPECT_EQ(to.Receive(bytes.size()), bytes.substr(0, at));
      EXPECT_TRUE(to.AtEnd());
      EXPECT_TRUE(from.AtEnd());
      to.Close();
      sender.join();
    }
  }
  EXPECT_EQ(proxy_->counters().cut, 12u);
  auto [client, server] = Open();  // the next is whole
  client.Send(bytes.substr(0, 1000));
  EXPECT_EQ(server.Receive(1000), bytes.substr(0, 1000));
}

TEST_P(FaultProxyTest, ACutterSeesEveryByteOnceAndDecides) {
  std::string seen;
  proxy_->SetCutter([&](uint64_t connection, Way way, std::string_view bytes) {
    EXPECT_EQ(connection, 0u);
    std::optional<size_t> at;
    if (way == Way::kUp) {
      seen += bytes;
      const size_t found = seen.find("stop");
      if (found != std::string::npos) at = found + 4 - (seen.size() - bytes.size());
    }
    return at;
  });
  auto [client, server] = Open();
  client.Send("go on");
  EXPECT_EQ(server.Receive(5), "go on");
  client.Send(", then stop here");
  EXPECT_EQ(server.Receive(100), ", then stop");
  EXPECT_TRUE(client.AtEnd());
  proxy_->SetCutter(nullptr);
}

TEST_P(FaultProxyTest, AllAreCut) {
  auto [client, server] = Open();
  auto [other_client, other_server] = Open();
  client.Send("before");
  EXPECT_EQ(server.Receive(6), "before");
  proxy_->CutAll();
  for (Socket* socket : {&client, &server, &other_client, &other_server})
    EXPECT_TRUE(socket->AtEnd());
  EXPECT_EQ(proxy_->counters().cut, 2u);
  auto [next_client, next_server] = Open();
  next_client.Send("after");
  EXPECT_EQ(next_server.Receive(5), "after");
}

TEST_P(FaultProxyTest, OneWayIsClosedAndTheOtherGoesOn) {
  auto [client, server] = Open();
  server.Send("a");
  EXPECT_EQ(client.Receive(1), "a");
  proxy_->HalfClose(Way::kUp);
  EXPECT_TRUE(server.AtEnd());
  client.Send("into nothing");
  server.Send("still here");
  EXPECT_EQ(client.Receive(10), "still here");
  EXPECT_EQ(proxy_->counters().bytes_up, 0u);
}

TEST_P(FaultProxyTest, WhatIsStalledComesLater) {
  auto [client, server] = Open();
  proxy_->Stall(Way::kUp);
  client.Send("late");
  EXPECT_TRUE(server.Silent());
  server.Send("in time");  // the other way is free
  EXPECT_EQ(client.Receive(7), "in time");
  auto [new_client, new_server] = Open();
  new_client.Send("late too");
  EXPECT_TRUE(new_server.Silent());
  proxy_->Resume(Way::kUp);
  EXPECT_EQ(server.Receive(4), "late");
  EXPECT_EQ(new_server.Receive(8), "late too");
  const auto begin = Clock::now();
  proxy_->StallFor(Way::kDown, milliseconds(25));
  server.Send("by itself");
  EXPECT_EQ(client.Receive(9), "by itself");
  EXPECT_GE(Clock::now() - begin, milliseconds(25));
}

TEST_P(FaultProxyTest, AConnectionIsOvertaken) {
  proxy_->HoldNextConnection();
  Socket first = Connect();
  first.Send("first");
  Socket second = Connect();
  second.Send("second");
  Socket one = Accept(), two = Accept();
  EXPECT_EQ(one.Receive(6), "second");
  EXPECT_EQ(two.Receive(5), "first");
}

TEST_P(FaultProxyTest, NobodyListensForAWhile) {
  auto [client, server] = Open();
  client.Send("a");
  EXPECT_EQ(server.Receive(1), "a");
  proxy_->SetRefuse(true);
  EXPECT_FALSE(Connect().connected());
  client.Send("b");  // who is connected stays so
  EXPECT_EQ(server.Receive(1), "b");
  proxy_->SetRefuse(false);
  auto [next_client, next_server] = Open();
  next_client.Send("c");
  EXPECT_EQ(next_server.Receive(1), "c");
}

TEST_P(FaultProxyTest, WithoutATargetTheConnectionEnds) {
  close(std::exchange(listener_, -1));
  if (unix_) unlink(target_.c_str() + 5);
  Socket client = Connect();
  ASSERT_TRUE(client.connected());
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(proxy_->counters().unreachable, 1u);
}

TEST_P(FaultProxyTest, ASenderFeelsThatNobodyReads) {
  auto [client, server] = Open();
  proxy_->Stall(Way::kUp);
  const timeval limit = {0, 50'000};
  setsockopt(client.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  client.Send(std::string(64 << 20, 'x'));  // gives up when the pipe is full
  proxy_->Resume(Way::kUp);
  client.EndSending();
  EXPECT_LT(server.Receive(64 << 20).size(), size_t{64} << 20);
}

INSTANTIATE_TEST_SUITE_P(, FaultProxyTest, ::testing::Values("tcp", "unix"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace outboard::test
