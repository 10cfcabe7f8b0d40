// Sessions on several devices of one worker: a program runs as it does on one, has an executor for
// each device, and is billed for each.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/lost_test.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::DescendantsNamed;
using test::Eventually;
using test::LostTest;
using test::Outboard;
using test::Step;

class GroupsTest : public LostTest {
 protected:
  // A user's program, on as many devices as the variable says.
  std::unique_ptr<test::Process> StartTraining(const std::string& devices, const char* steps) {
    std::vector<std::string> environment = {"CLOUD=1", "CLOUD_HOST=" + cluster_.target(),
                                            "CLOUD_KEY=" + cluster_.key()};
    if (!devices.empty()) environment.push_back("CLOUD_DEVICES=" + devices);
    return std::make_unique<test::Process>(std::vector<std::string>{SMALL_TRAINER_BINARY, steps},
                                           std::move(environment));
  }
  // Its losses.
  static std::vector<double> LossesOf(const std::string& out) {
    std::vector<double> losses;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("step ")) losses.push_back(std::stod(line.substr(line.find(": ") + 2)));
    return losses;
  }
  std::unique_ptr<Session> ConnectTo(uint32_t devices) {
    session::SessionOptions options = cluster_.Options();
    options.devices = devices;
    auto session = Session::Connect(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
};

TEST_F(GroupsTest, ATraining_OnTwoDevices_HasTheLossesOfOneAndIsBilledForTwo) {
  cluster_.StartUp(1, "--devices 2 --no-idle-search");
  std::vector<double> expected;
  for (const std::string devices : {"", "2"}) {
    auto training = StartTraining(devices, "60");
    ASSERT_EQ(training->Wait(), 0) << training->err();
    const std::vector<double> losses = LossesOf(training->out());
    ASSERT_EQ(losses.size(), 60u);
    if (expected.empty()) expected = losses;
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-4 * std::abs(expected[i]))
          << devices << ", step " << i;
  }
  const test::Ended usage = Outboard("usage --json --data " + cluster_.data());
  EXPECT_NE(usage.out.find("\"devices\": 2"), std::string::npos) << usage.out;
  EXPECT_TRUE(cluster_.Books()->Verify().ok());
}

TEST_F(GroupsTest, ASession_HasAnExecutorForEachDeviceAndTwiceTheBill) {
  cluster_.StartUp(1, "--devices 2");
  auto session = ConnectTo(2);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Step(*session).ok());
  EXPECT_EQ(DescendantsNamed(cluster_.gateway().pid(), "executor").size(), 3u) << "one is spare";
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  ASSERT_TRUE(Step(*session).ok());
  ASSERT_TRUE(session->Close().ok());
  const session::Stats stats = session->stats();
  EXPECT_NEAR(stats.seconds_billed, 2 * stats.seconds_open, 1.0);
  EXPECT_EQ(cluster_.Books()->UsageOfAll()->device_ms,
            static_cast<int64_t>(stats.seconds_billed * 1000 + 0.5));
  EXPECT_TRUE(Eventually([&] {
    return DescendantsNamed(cluster_.gateway().pid(), "executor").size() == 1;
  })) << "all of its executors end";
}

TEST_F(GroupsTest, ALostRank_EndsTheSessionAndIsNamed) {
  cluster_.StartUp(1, "--devices 2");
  auto session = ConnectTo(2);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Step(*session).ok());
  // The youngest is the spare one; the one before it is rank 1.
  std::vector<int> executors = DescendantsNamed(cluster_.gateway().pid(), "executor");
  std::sort(executors.begin(), executors.end());
  ASSERT_EQ(executors.size(), 3u);
  kill(executors[1], SIGKILL);
  const absl::Status why = FailureOf(*session);
  EXPECT_EQ(why.code(), StatusCode::kUnavailable);
  test::ExpectAsDocumented("A device of several is lost", why);
  EXPECT_NE(why.message().find("signal 9"), std::string::npos) << why;
  EXPECT_TRUE(Eventually([&] { return !test::IsAlive(executors[0]); }));
  auto next = ConnectTo(2);
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(Step(*next).ok());
}

TEST_F(GroupsTest, AWorkerThatStandsStill_CostsNothing) {
  cluster_.StartUp(1, "--devices 2");
  auto training = StartTraining("2", "400");
  ASSERT_TRUE(Eventually([&] { return training->out().find("step 100:") != std::string::npos; }))
      << training->err();
  const std::vector<int> worker = DescendantsNamed(cluster_.gateway().pid(), "--name local-0");
  ASSERT_EQ(worker.size(), 1u);
  kill(worker[0], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(worker[0], SIGCONT);
  ASSERT_EQ(training->Wait(), 0) << training->err();
  EXPECT_EQ(LossesOf(training->out()).size(), 400u);
}

TEST_F(GroupsTest, AWrongNumberOfDevices_IsSaidAtOnce) {
  cluster_.StartUp(1);
  for (const char* devices : {"0", "two", "65", "-1", "2.5"}) {
    auto training = StartTraining(devices, "1");
    EXPECT_EQ(training->Wait(), 1) << devices;
    test::ExpectAsDocumented("No devices, or more than a session can have", training->err());
  }
  session::SessionOptions options = cluster_.Options();
  options.devices = 0;
  EXPECT_EQ(Session::Connect(options).status().code(), StatusCode::kInvalidArgument);
  options.devices = 6;
  options.mesh = {2, 2};
  test::ExpectAsDocumented("A mesh that is not of the session's devices",
                           Session::Connect(options).status());
  options.mesh = {2, 3};
  options.spread = "everywhere";
  EXPECT_EQ(Session::Connect(options).status().code(), StatusCode::kInvalidArgument);
  options.spread = "stages";
  EXPECT_EQ(Session::Connect(options).status().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace outboard
