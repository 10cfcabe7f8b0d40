// Who has not shown a key: what it may hold of a gateway, and for how long.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/session/session.h"
#include "tests/net/fault_proxy.h"
#include "tests/support/cluster.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using test::FaultProxy;

// Connections that say nothing were held for ever, and 1,000 of them were the end of the gateway.
TEST(Doors, SilentConnectionsAreClosed) {
  constexpr int kSilent = 1'500;
  test::Cluster cluster;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < kSilent + 500) GTEST_SKIP() << "too few descriptors may be opened here";
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  cluster.StartGateway();  // with the limit that a shell gives
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  auto worker = cluster.StartWorker();
  cluster.key();
  const std::string target = cluster.target();
  sockaddr_in address{
      .sin_family = AF_INET,
      .sin_port = htons(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))),
      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  std::vector<int> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(silent.back(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  FaultProxy proxy(target);  // by TCP, as from another machine
  session::SessionOptions options = cluster.Options();
  options.target = proxy.address();
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(test::Step(**session).ok());
  for (const int fd : silent) {  // the server's settings, and the end
    char bytes[256];
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    close(fd);
  }
  EXPECT_TRUE((*session)->Close().ok());
  limit.rlim_cur = before;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace outboard
