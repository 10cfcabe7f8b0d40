// How often a program waits for the network: not at all where it reads no value, once where it
// reads one, whatever the distance.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
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
  static uint64_t WindowWaits() { return SessionIfConnected()->stats().window_waits; }

  // Calls `work`. However slow this thread is, no answer arrives before it waits for one.
  void AnsweredOnceItWaits(const std::function<void()>& work) {
    proxy_->Stall(Way::kDown);
    const uint64_t waits = RoundTrips() + WindowWaits();
    std::atomic<bool> done = false;
    std::thread watch([&] {
      test::Eventually([&] { return done || RoundTrips() + WindowWaits() != waits; });
      proxy_->Resume(Way::kDown);
    });
    work();
    done = true;
    watch.join();
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
    AnsweredOnceItWaits([&] { training.Step().item(); });
    EXPECT_EQ(RoundTrips(), step + 1);  // the first step too
  }
}

TEST_P(RoundTripsTest, OneForSeveralValuesOfAStep) {
  test::SmallTraining training;
  // After a step that took unusually long, one item alone may be in flight for a moment
  // (client/session/core/send_window.h). The second step then waits, and that is not measured here.
  for (int attempt = 0; attempt < 10; ++attempt) {
    const uint64_t round_trips = RoundTrips(), window_waits = WindowWaits();
    AnsweredOnceItWaits([&] {
      const Tensor first = training.Step(), second = training.Step();
      second.item();
      first.item();  // came with it
    });
    if (WindowWaits() != window_waits) continue;
    EXPECT_EQ(RoundTrips(), round_trips + 1);
    return;
  }
  FAIL() << "no two steps were ever in flight";
}

INSTANTIATE_TEST_SUITE_P(RoundTrip, RoundTripsTest, ::testing::Values(0, 20, 100, 200),
                         [](const auto& info) { return std::to_string(info.param) + "ms"; });

}  // namespace
}  // namespace outboard
