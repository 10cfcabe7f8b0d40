// A machine of an account's own: a worker that joins where clients connect, with a key, and serves
// that account alone.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/cluster.h"
#include "tests/support/paths.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using test::Eventually;
using test::Outboard;

std::string KeyOf(const test::Cluster& cluster, const std::string& tenant) {
  const test::Ended made = Outboard("key create --account " + tenant + " --data " + cluster.data());
  EXPECT_EQ(made.code, 0) << made.err;
  return made.out.substr(0, made.out.find('\n'));
}

TEST(OwnMachine, ServesItsAccountForNothing_AndNobodyElse) {
  test::Cluster cluster;
  cluster.StartGateway("--snapshot-every 1");
  const std::string ada = KeyOf(cluster, "ada"), bob = KeyOf(cluster, "bob");
  const auto worker = cluster.Start(
      "worker --own --identity-file " + (cluster.folder() / "own-identity"),
      {"CLOUD_HOST=" + cluster.target(), "CLOUD_KEY=" + ada, "CLOUD_FINGERPRINT"});
  session::SessionOptions options;
  options.target = cluster.target();
  options.key = ada;
  options.device_class = "own";
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status() << cluster.gateway().err() << worker->err();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(test::Step(**session).ok());
  EXPECT_EQ((*session)->stats().price_per_hour_micro_usd, 0u);
  const auto devices = Outboard("device ls --json --data " + cluster.data());
  EXPECT_NE(devices.out.find("\"class\":\"own\""), std::string::npos) << devices.out;
  EXPECT_EQ(worker->err().find(ada), std::string::npos) << "the key is in no log";

  session::SessionOptions other = options;
  other.key = bob;
  other.device_class = "";
  other.queue_timeout = std::chrono::milliseconds(1000);
  const auto refused = Session::Connect(other);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();

  EXPECT_TRUE((*session)->Close().ok());
  EXPECT_TRUE(cluster.Books()->Verify().ok());
  EXPECT_EQ(cluster.Books()->UsageOfAll()->amount.value, 0);
}

TEST(OwnMachine, WithAWrongKey_IsRefusedAndEnds) {
  test::Cluster cluster;
  cluster.StartGateway();
  const test::Ended ended = test::RunToEnd(
      {test::kOutboardProgram, "worker", "--own", "--gateway", cluster.target(), "--identity-file",
       cluster.folder() / "own-identity"},
      {"CLOUD_KEY=ob_live_0123456789abcdef_0123456789abcdef0123456789abcdef"});
  EXPECT_NE(ended.code, 0);
  EXPECT_NE(ended.err.find("the API key is not valid"), std::string::npos) << ended.err;
}

TEST(OwnMachine, WhoseKeyIsRevoked_LeavesAtOnce) {
  test::Cluster cluster;
  cluster.StartGateway();
  const test::Ended made = Outboard("key create --json --data " + cluster.data());
  const auto part = [&](const std::string& name) {
    const size_t at = made.out.find("\"" + name + "\": \"") + name.size() + 5;
    return made.out.substr(at, made.out.find('"', at) - at);
  };
  const auto worker =
      cluster.Start("worker --own --identity-file " + (cluster.folder() / "own-identity"),
                    {"CLOUD_HOST=" + cluster.target(), "CLOUD_KEY=" + part("key")});
  EXPECT_EQ(Outboard("key revoke " + part("id") + " --data " + cluster.data()).code, 0);
  EXPECT_EQ(worker->Wait(30), 2) << worker->err();
}

TEST(OwnMachine, WithoutAKeyOrAnAddress_IsWrongUsage) {
  EXPECT_EQ(Outboard("worker --own", {"CLOUD_HOST", "CLOUD_KEY=ob_live_x"}).code, 2);
  EXPECT_EQ(Outboard("worker --own --gateway 127.0.0.1:1", {"CLOUD_KEY"}).code, 2);
  EXPECT_EQ(Outboard("worker", {}).code, 2);
}

}  // namespace
}  // namespace outboard
