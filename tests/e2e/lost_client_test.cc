// Users' programs that are killed or interrupted in the middle of their steps: what is left behind,
// what is billed, and who has the device next.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/e2e/lost_test.h"
#include "tests/support/paths.h"

namespace outboard {
namespace {

using test::Eventually;
using test::LostTest;
using test::Step;

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

TEST_F(LostTest, AClientWithoutAGatewaySaysWhereItLooked) {
  for (const char* nobody : {"127.0.0.1:1", "localhost", "unix:/nowhere/s"}) {
    const test::Ended ended = test::RunToEnd(
        {test::kStepperProgram}, {"CLOUD=1", std::string("CLOUD_HOST=") + nobody, "CLOUD_KEY=k"});
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find(nobody), std::string::npos) << ended.err;
  }
  cluster_.StartUp(1);
  const test::Ended keyless = test::RunToEnd(
      {test::kStepperProgram}, {"CLOUD=1", "CLOUD_HOST=" + cluster_.target(), "CLOUD_KEY"});
  EXPECT_EQ(keyless.code, 2);
  test::ExpectAsDocumented("No key", keyless.err);
}

TEST_F(LostTest, AnInterruptedClientEndsAtOnce) {
  cluster_.StartUp(1);
  auto stepper = StartStepper();
  EXPECT_EQ(stepper->Stop(SIGINT), 128 + SIGINT);
}

TEST_F(LostTest, AnInterruptedClientTakesItsPrivateServeAlong) {
  test::Process stepper({test::kStepperProgram},
                        {"CLOUD", std::string("OUTBOARD_BIN=") + test::kOutboardProgram});
  ASSERT_TRUE(Eventually([&] { return stepper.out().find("step 3\n") != std::string::npos; }))
      << stepper.err();
  const std::vector<int> family = test::FamilyOf(stepper.pid());
  EXPECT_GE(family.size(), 3u);
  EXPECT_EQ(stepper.Stop(SIGINT), 128 + SIGINT);
  for (int pid : family) EXPECT_TRUE(Eventually([&] { return !test::IsAlive(pid); })) << pid;
}

}  // namespace
}  // namespace outboard
