// How often a program waits for the network: not at all where it reads no value, once where it
// reads one, whatever the distance.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/e2e/cloud_training.h"

namespace outboard {
namespace {

using std::chrono::milliseconds;
using test::Way;

class RoundTripsTest : public test::CloudTrainingTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    CloudTrainingTest::SetUp();
    proxy_->SetRoundTrip(milliseconds(GetParam()));
    Open();
  }
  void TearDown() override {
    Calm();
    Close();
    CloudTrainingTest::TearDown();
  }

  static uint64_t RoundTrips() { return SessionIfConnected()->stats().blocking_round_trips; }

  // What item() gives, where nothing can have arrived before it is called, however slow this thread
  // is: answers pass from when somebody waits for them.
  double ItemOf(const Tensor& tensor) {
    const uint64_t before = RoundTrips();
    std::atomic<bool> done = false;
    std::thread watch([&] {
      test::Eventually([&] { return done || RoundTrips() != before; });
      proxy_->Resume(Way::kDown);
    });
    const double value = tensor.item();
    done = true;
    watch.join();
    return value;
  }
};

TEST_P(RoundTripsTest, NoneWhereNoValueIsRead) {
  test::SmallTraining training;
  std::vector<Tensor> losses;
  for (int step = 0; step < 20; ++step) losses.push_back(training.Step());
  EXPECT_EQ(RoundTrips(), 0u);  // since the session was opened: the graph, the images and all
}

TEST_P(RoundTripsTest, OneWhereAValueIsRead) {
  test::SmallTraining training;
  for (uint64_t step = 0; step < 4; ++step) {
    proxy_->Stall(Way::kDown);
    const Tensor loss = training.Step();
    ItemOf(loss);
    EXPECT_EQ(RoundTrips(), step + 1);  // the first step too
  }
}

TEST_P(RoundTripsTest, OneForSeveralValuesOfAStep) {
  test::SmallTraining training;
  training.Step();
  ASSERT_TRUE(SessionIfConnected()->Sync().ok());  // else the window of items may be full below
  proxy_->Stall(Way::kDown);
  const Tensor first = training.Step(), second = training.Step();
  const uint64_t before = RoundTrips();
  ItemOf(second);
  first.item();  // came with it
  EXPECT_EQ(RoundTrips(), before + 1);
}

INSTANTIATE_TEST_SUITE_P(RoundTrip, RoundTripsTest, ::testing::Values(0, 20, 100, 200),
                         [](const auto& info) { return std::to_string(info.param) + "ms"; });

}  // namespace
}  // namespace outboard
