// Forks where there are fewer devices than sessions, with real processes: each begins when it has a
// device, and none waits for the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "client/nn/kept.h"
#include "client/session/session.h"
#include "client/tensor/session_scope.h"
#include "client/tensor/tensor.h"
#include "tests/support/cluster.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using Sessions = std::vector<std::unique_ptr<Session>>;

class ForksTest : public ::testing::Test {
 protected:
  static constexpr int kForks = 3;

  // One device of two is free when it forks.
  void SetUp() override {
    cloud_.StartUp(1, "--devices 2 --snapshot-every 5");
    session::SessionOptions options = cloud_.Options();
    options.debug = true;
    options.tell = [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      opened_ += line.starts_with("a session at ") ? 1 : 0;
    };
    absl::StatusOr<std::unique_ptr<Session>> parent = absl::UnknownError("");
    ASSERT_TRUE(test::Eventually([&] { return (parent = Session::Connect(options)).ok(); }))
        << parent.status();
    parent_ = *std::move(parent);
    const SessionScope scope(parent_);
    weights_ = Tensor::from(std::vector<float>{1, 2});
    keep({{"weights", weights_}});
    auto forks = parent_->Fork(kForks);
    ASSERT_TRUE(forks.ok()) << forks.status();
    forks_ = *std::move(forks);
  }
  // Of the account, that wait for a device.
  size_t Queued() {
    const test::Ended ps =
        test::Outboard("ps --json --gateway " + cloud_.target(), {"CLOUD_KEY=" + cloud_.key()});
    EXPECT_EQ(ps.code, 0) << ps.err;
    size_t queued = 0;
    for (size_t at = 0; (at = ps.out.find("\"queued\"", at)) != std::string::npos; ++at) ++queued;
    return queued;
  }

  int Opened() {
    std::lock_guard lock(mutex_);
    return opened_;
  }

  std::mutex mutex_;
  int opened_ = 0;  // lines that say that a session began
  test::Cluster cloud_;
  std::shared_ptr<Session> parent_;
  Tensor weights_;
  Sessions forks_;
};

TEST_F(ForksTest, FewerDevicesThanForks_EachBeginsWhenItHasOne) {
  EXPECT_EQ(Queued(), 2u);
  EXPECT_TRUE(forks_[0]->stats().session_id != "" && forks_[1]->stats().session_id.empty())
      << "who has a device comes first";
  const uint64_t early = forks_[2]->NewHandle();  // before it knows what it begins with
  for (int i = 0; i < kForks; ++i) {
    const std::shared_ptr<Session> fork = std::move(forks_[static_cast<size_t>(i)]);
    const SessionScope scope(fork);
    nn::StateDict state = kept();
    ASSERT_EQ(state.size(), 1u) << fork->status();
    Tensor& weights = state[0].second;
    weights.assign(weights + static_cast<float>(i));
    const auto shifted = static_cast<float>(i);
    EXPECT_EQ(weights.to_vector<float>(), (std::vector<float>{1 + shifted, 2 + shifted}));
    if (i == 2) EXPECT_GT(fork->NewHandle(), early);
    ASSERT_TRUE(fork->Close().ok());  // its device is the next one's
    EXPECT_LE(Queued(), static_cast<size_t>(kForks - 2 - std::min(i, 1)));
  }
  const SessionScope scope(parent_);
  EXPECT_EQ(weights_.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST_F(ForksTest, AForkThatIsClosedInTheQueue_LeavesIt) {
  ASSERT_EQ(Queued(), 2u);
  EXPECT_EQ(Opened(), 2) << "the parent and the one that has a device";
  ASSERT_TRUE(forks_[1]->Close().ok());
  EXPECT_FALSE(forks_[1]->Sync().ok());
  EXPECT_TRUE(test::Eventually([&] { return Queued() == 1; }));
  ASSERT_TRUE(forks_[0]->Close().ok());
  EXPECT_TRUE(forks_[2]->Sync().ok());
  EXPECT_TRUE(test::Eventually([&] { return Opened() == 3; })) << "not one that never began";
  EXPECT_EQ(forks_[2]->Kept().size(), 1u);
  ASSERT_TRUE(forks_[2]->Close().ok());
}

}  // namespace
}  // namespace outboard
