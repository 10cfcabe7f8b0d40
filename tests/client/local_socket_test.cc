// When a program takes the unix socket beside a gateway's port, and when it must not.
#include "client/session/link/local_socket.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gateway/server/gateway.h"
#include "gateway/streams/abstract_listener.h"
#include "tests/support/gateway_test.h"

namespace outboard::session {
namespace {

class LocalSocketTest : public test::GatewayTest {
 protected:
  void Start(const std::string& listen) {
    gateway::GatewayOptions options;
    options.no_auth = true;
    options.listen = listen;
    StartGateway(options);
    StartWorker();
    const std::string address = gateway_->address();
    port_ = address.substr(address.rfind(':') + 1);
  }
  std::string port_;
};

TEST_F(LocalSocketTest, IsBesideAPortOfThisMachine) {
  Start("127.0.0.1:0");
  const std::string socket = absl::StrCat("unix-abstract:outboard-127.0.0.1:", port_);
  EXPECT_EQ(LocalSocketOf("127.0.0.1:" + port_), socket);
  EXPECT_EQ(LocalSocketOf("localhost:" + port_), socket);
  EXPECT_EQ(LocalSocketOf("[::1]:" + port_), std::nullopt);  // nobody listens there
  EXPECT_EQ(LocalSocketOf("elsewhere.example:" + port_), std::nullopt);
  EXPECT_EQ(LocalSocketOf("unix:/somewhere"), std::nullopt);
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(session->Sync().ok());
}

TEST_F(LocalSocketTest, GoesWithItsGateway) {
  Start("127.0.0.1:0");
  worker_.reset();
  gateway_.reset();
  EXPECT_EQ(LocalSocketOf("127.0.0.1:" + port_), std::nullopt);
}

TEST_F(LocalSocketTest, ANameWithoutThePortIsSomebodyElses) {
  Start("127.0.0.1:0");
  worker_.reset();
  gateway_.reset();  // the port is free now, and the name for whoever wants it
  auto squatter =
      gateway::AbstractListener::Listen("outboard-127.0.0.1:" + port_, [](int fd) { close(fd); });
  ASSERT_TRUE(squatter.ok()) << squatter.status();
  EXPECT_EQ(LocalSocketOf("127.0.0.1:" + port_), std::nullopt);
}

}  // namespace
}  // namespace outboard::session
