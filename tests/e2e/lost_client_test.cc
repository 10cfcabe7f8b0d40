// Users' programs that are killed or interrupted in the middle of their steps: what is left behind,
// what is billed, and who has the device next.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/e2e/lost_test.h"

namespace outboard {
namespace {

using test::Eventually;
using test::LostTest;
using test::Step;
using transport::Session;

TEST_F(LostTest, AKilledClientGivesItsDeviceToTheNext) {
  cluster_.StartUp(1);
  const auto opened = std::chrono::steady_clock::now();
  auto stepper = StartStepper();
  stepper->Stop(SIGKILL);
  // Its connection is gone; the device is free when it was idle for 10 s, and the next client has
  // the patience.
  auto next = Session::Connect(cluster_.Options());
  ASSERT_TRUE(next.ok()) << next.status();
  const auto elapsed = std::chrono::steady_clock::now() - opened;
  EXPECT_TRUE(Step(**next).ok());
  ASSERT_TRUE(Eventually([&] { return BilledSeconds() > 0; }));
  EXPECT_LE(BilledSeconds(), std::chrono::duration_cast<std::chrono::seconds>(elapsed).count() + 1);
}

TEST_F(LostTest, AnInterruptedClientEndsAtOnce) {
  cluster_.StartUp(1);
  auto stepper = StartStepper();
  EXPECT_EQ(stepper->Stop(SIGINT), 128 + SIGINT);
}

TEST_F(LostTest, AnInterruptedClientTakesItsPrivateServeAlong) {
  test::Process stepper({STEPPER_BINARY}, {"CLOUD", "OUTBOARD_BIN=" OUTBOARD_BINARY});
  ASSERT_TRUE(Eventually([&] { return stepper.out().find("step 3\n") != std::string::npos; }))
      << stepper.err();
  const std::vector<int> family = test::FamilyOf(stepper.pid());
  EXPECT_GE(family.size(), 3u);
  EXPECT_EQ(stepper.Stop(SIGINT), 128 + SIGINT);
  for (int pid : family) EXPECT_TRUE(Eventually([&] { return !test::IsAlive(pid); })) << pid;
}

}  // namespace
}  // namespace outboard
