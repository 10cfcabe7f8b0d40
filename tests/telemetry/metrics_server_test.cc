// The server of /metrics: who may read, what it answers, and what it bears.
#include "telemetry/metrics_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/http.h"

namespace outboard::telemetry {
namespace {

using test::Ask;
using test::Get;

std::unique_ptr<MetricsServer> Start(const std::string& token = "") {
  auto server = MetricsServer::Start({.listen = "127.0.0.1:0", .token = token});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(MetricsServer, OnLoopback_Answers) {
  const auto server = Start();
  EXPECT_NE(Get(server->address(), "/metrics").find("# TYPE process_open_fds gauge"),
            std::string::npos);
}

TEST(MetricsServer, OtherPathsAndMethods_AreRefused) {
  const auto server = Start();
  const struct {
    std::string request, status;
  } cases[] = {
      {"GET / HTTP/1.1", "404"},
      {"GET /metrics/x HTTP/1.1", "404"},
      {"GET /../../etc/passwd HTTP/1.1", "4"},
      {"POST /metrics HTTP/1.1", "405"},
      {"DELETE /metrics HTTP/1.1", "405"},
      {"HEAD /metrics HTTP/1.1", "200"},
      {"GET /metrics?x=y HTTP/1.1", "200"},
  };
  for (const auto& c : cases)
    EXPECT_TRUE(Ask(server->address(), c.request + "\r\nHost: x\r\n\r\n")
                    .starts_with("HTTP/1.1 " + c.status))
        << c.request;
}

TEST(MetricsServer, WithAToken_AsksForIt) {
  const auto server = Start("a-long-enough-token");
  const struct {
    std::string header;
    bool may;
  } cases[] = {{"", false},
               {"Authorization: Bearer a-long-enough-tokem\r\n", false},
               {"Authorization: Bearer a-long-enough-token2\r\n", false},
               {"Authorization: Bearer \r\n", false},
               {"Authorization: Basic a-long-enough-token\r\n", false},
               {"authorization: Bearer a-long-enough-token\r\n", true}};
  for (const auto& c : cases)
    EXPECT_EQ(!Get(server->address(), "/metrics", c.header).empty(), c.may) << c.header;
  EXPECT_TRUE(Ask(server->address(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                  .starts_with("HTTP/1.1 401 "));
}

TEST(MetricsServer, BeyondThisMachine_OnlyWithAToken) {
  for (const char* listen : {"0.0.0.0:0", "[::]:0"}) {
    const auto without = MetricsServer::Start({.listen = listen});
    EXPECT_EQ(without.status().code(), absl::StatusCode::kInvalidArgument) << listen;
    EXPECT_NE(without.status().message().find("--metrics-token-file"), std::string::npos);
  }
  const auto with = MetricsServer::Start({.listen = "0.0.0.0:0", .token = "a-long-enough-token"});
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_NE(Get((*with)->address(), "/metrics", "Authorization: Bearer a-long-enough-token\r\n"),
            "");
}

TEST(MetricsServer, BadAddress_SaysWhatIsWrong) {
  for (const char* listen : {"", "127.0.0.1", ":9667", "no-such-host.invalid:1", "127.0.0.1:x"})
    EXPECT_EQ(MetricsServer::Start({.listen = listen}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << listen;
  for (const auto& [listen, why] : std::vector<std::pair<std::string, std::string>>{
           {"127.0.0.1:70000", "its port is no number"},
           {"127.0.0.1:http", "its port is no number"},
           {":9667", "no host"},
           {"box", "no port"}}) {
    const std::string message(MetricsServer::Start({.listen = listen}).status().message());
    EXPECT_NE(message.find(why), std::string::npos) << message;
  }
  const auto server = Start();
  EXPECT_EQ(MetricsServer::Start({.listen = server->address()}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(MetricsServer, LargeRequest_IsRefused) {
  const auto server = Start();
  const std::string answer = Ask(
      server->address(), "GET /metrics HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n");
  EXPECT_FALSE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_NE(Get(server->address(), "/metrics"), "");
}

// Each holds a thread for two seconds at most: then the next request has its turn.
TEST(MetricsServer, SilentConnections_AreClosed) {
  const auto server = Start();
  std::vector<int> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(test::ConnectTo(server->address()));
  EXPECT_NE(Get(server->address(), "/metrics"), "");
  for (const int fd : silent) {
    EXPECT_EQ(test::ReadToEnd(fd).find("200 OK"), std::string::npos);
    close(fd);
  }
}

}  // namespace
}  // namespace outboard::telemetry
