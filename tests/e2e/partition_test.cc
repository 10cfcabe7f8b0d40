// Gateway and worker that cannot hear each other, or one of them not the other: sessions go on or
// end with a clear error, nothing goes on in secret, and all is well when the network is.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/net/fault_proxy.h"
#include "tests/support/cluster.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using test::DescendantsNamed;
using test::Eventually;
using test::FaultProxy;
using test::Way;

class PartitionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.StartGateway("--snapshot-every 0");  // or a session would wait for another worker
    cluster_.key();
    proxy_ = std::make_unique<FaultProxy>(cluster_.fleet_target());
    worker_ = cluster_.StartWorkerOf(proxy_->address());
  }

  // The session's, and one that waits for the next.
  size_t Executors() const { return DescendantsNamed(worker_->pid(), "executor").size(); }

  // The worker is cut off as `fault` says, until its session has ended on both sides.
  void CutOff(const std::function<void()>& fault) {
    auto session = cluster_.Connect();
    ASSERT_NE(session, nullptr);
    ASSERT_TRUE(test::Step(*session).ok());
    EXPECT_TRUE(Eventually([&] { return Executors() == 2; }));
    fault();
    // A lease lasts 5 s.
    absl::Status status;
    EXPECT_TRUE(Eventually([&] { return !(status = test::Step(*session)).ok(); }));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(test::IsAlive(worker_->pid()));
    proxy_->Resume(Way::kUp);
    proxy_->Resume(Way::kDown);
    // It may have outlived its session (decision 036), but not the next word of the gateway.
    EXPECT_TRUE(Eventually([&] { return Executors() == 1; }));
    auto next = cluster_.Connect();  // patient: the worker has to notice first
    ASSERT_NE(next, nullptr);
    EXPECT_TRUE(test::Step(*next).ok());
    EXPECT_TRUE(next->Close().ok());
    EXPECT_TRUE(cluster_.Books()->Verify().ok());
  }

  test::Cluster cluster_;
  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<test::Process> worker_;
};

TEST_F(PartitionTest, TheGatewayDoesNotHearTheWorker) {
  CutOff([&] { proxy_->Stall(Way::kUp); });
}

TEST_F(PartitionTest, TheWorkerDoesNotHearTheGateway) {
  CutOff([&] { proxy_->Stall(Way::kDown); });
}

TEST_F(PartitionTest, NeitherHearsTheOther) {
  CutOff([&] {
    proxy_->Stall(Way::kUp);
    proxy_->Stall(Way::kDown);
  });
}

}  // namespace
}  // namespace outboard
