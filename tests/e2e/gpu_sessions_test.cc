// What a session has of a GPU: all of it, alone, and what an earlier session's driver has linked.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/gpu_cluster.h"
#include "tests/support/http.h"

namespace outboard {
namespace {

using test::Outboard;

class GpuSessions : public test::GpuCluster {};

TEST_F(GpuSessions, MoreSessionsThanGpus_AreRefusedAtTheStart) {
  const test::Ended ended =
      Outboard("serve --devices 3 --ephemeral --no-auth --listen unix:" + (folder_ / "s"),
               Driver(2));
  EXPECT_NE(ended.code, 0);
  EXPECT_TRUE(Contains(ended.err, "--devices 3") && Contains(ended.err, "2 GPUs")) << ended.err;
}

TEST_F(GpuSessions, SessionsHaveAGpuEach) {
  StartUp(Driver(2));
  const auto first = Connect(), second = Connect();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_TRUE(test::Step(*first).ok()) << test::Step(*first) << Log();
  EXPECT_TRUE(test::Step(*second).ok());
  // Both are taken; the next one's process begins when one is free.
  ASSERT_TRUE(first->Close().ok());
  const auto third = Connect();
  ASSERT_NE(third, nullptr);
  EXPECT_TRUE(test::Step(*third).ok());
}

// The second process of the account finds what the first has linked; another account does not.
TEST_F(GpuSessions, LinkedCode_IsTheAccountsNextProcesss) {
  cluster_.StartGateway("--snapshot-every 0");
  std::vector<std::string> environment = Driver(1);
  environment.push_back("OUTBOARD_OBJECT_CACHE=" + (folder_ / "objects"));
  const auto worker =
      cluster_.StartWorker("--no-idle-search --shared-anyway --metrics-listen 127.0.0.1:0",
                           environment);
  const std::string metrics = cluster_.last_metrics();
  const auto hits = [&] {
    const std::string page = test::Get(metrics, "/metrics");
    const std::string name = "outboard_linked_code_lookups_total{result=\"hit\"} ";
    const size_t at = page.find(name);
    return at == std::string::npos ? -1 : std::atoi(page.c_str() + at + name.size());
  };
  for (const int expected : {0, 1}) {
    const auto session = Connect();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(test::Step(*session).ok()) << test::Step(*session) << worker->err();
    EXPECT_EQ(hits(), expected);
    EXPECT_TRUE(session->Close().ok());
  }
}

}  // namespace
}  // namespace outboard
