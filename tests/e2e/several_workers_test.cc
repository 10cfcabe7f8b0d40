// Sessions whose devices are on several workers: a program runs as it does on one device, and the
// loss of a worker frees the others and is named.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/lost_test.h"
#include "tests/e2e/small_training.h"
#include "tests/e2e/trainer_program.h"
#include "tests/support/row_sums.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::DescendantsNamed;
using test::Eventually;
using test::LossesOf;
using test::LostTest;
using test::Outboard;
using test::StartTraining;
using test::Step;

class SeveralWorkersTest : public LostTest {
 protected:
  std::unique_ptr<test::Process> StartNode(int number, const std::string& more) {
    const std::string name = "node-" + std::to_string(number);
    return cluster_.Start("worker --gateway " + cluster_.fleet_target() + " --fleet-secret-file " +
                          cluster_.data() + "/fleet.secret --name " + name + " --identity-file " +
                          (cluster_.folder() / name) + " --no-idle-search " + more);
  }
  void StartNodes(int nodes, int devices, const std::string& snapshots = "--snapshot-every 1") {
    cluster_.StartGateway(snapshots);
    for (int i = 0; i < nodes; ++i)
      nodes_.push_back(StartNode(
          i, "--data-address 127.0.0.1:0 --devices " + std::to_string(devices)));
  }
  void ExpectSameLosses(const std::string& devices, size_t executors_each) {
    std::vector<double> expected;
    for (const std::string& count : {std::string(), devices}) {
      auto training = StartTraining(cluster_, count, "40");
      ASSERT_EQ(training->Wait(), 0) << training->err();
      const std::vector<double> losses = LossesOf(training->out());
      ASSERT_EQ(losses.size(), 40u);
      if (expected.empty()) expected = losses;
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], expected[i], test::LossTolerance(expected[i]))
            << count << " devices, step " << i;
    }
    auto session = ConnectTo(static_cast<uint32_t>(std::stoi(devices)));
    ASSERT_NE(session, nullptr);
    ASSERT_TRUE(Step(*session).ok());
    for (const auto& node : nodes_)
      EXPECT_TRUE(Eventually([&] {
        return DescendantsNamed(node->pid(), "executor").size() == executors_each + 1;
      })) << "one is spare, and may come later";
    EXPECT_TRUE(session->Close().ok());
    const test::Ended usage = Outboard("usage --json --data " + cluster_.data());
    EXPECT_NE(usage.out.find("\"devices\": " + devices), std::string::npos) << usage.out;
  }
  std::unique_ptr<Session> ConnectTo(uint32_t devices) {
    session::SessionOptions options = cluster_.Options();
    options.devices = devices;
    auto session = Session::Connect(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  std::vector<std::unique_ptr<test::Process>> nodes_;
};

TEST_F(SeveralWorkersTest, ATraining_OnTwoWorkersHasTheLossesOfOneDevice) {
  StartNodes(2, 1);
  ExpectSameLosses("2", 1);
}

TEST_F(SeveralWorkersTest, ATraining_OnThreeWorkersOfTwoDevicesHasThemToo) {
  StartNodes(3, 2);
  ExpectSameLosses("6", 2);
}

// In the middle of its steps, so most likely in a collective.
TEST_F(SeveralWorkersTest, ALostWorker_FreesAllOthersAndIsNamed) {
  StartNodes(3, 1, "--snapshot-every 0");
  auto training = StartTraining(cluster_, "3", "1000000");
  ASSERT_TRUE(Eventually([&] { return training->out().find("step 20:") != std::string::npos; }))
      << training->err();
  ASSERT_TRUE(Eventually([&] {
    return DescendantsNamed(nodes_[0]->pid(), "executor").size() == 2;
  })) << "one is spare";
  const auto killed = std::chrono::steady_clock::now();
  kill(nodes_[2]->pid(), SIGKILL);
  EXPECT_EQ(training->Wait(), 1);
  const auto took = std::chrono::steady_clock::now() - killed;
  RecordProperty("user_told_ms", static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  const std::string said = training->err();  // of an exception the code stands at the end
  ASSERT_NE(said.find("worker lost"), std::string::npos) << said;
  EXPECT_NE(said.find("[UNAVAILABLE]"), std::string::npos) << said;
  test::ExpectAsDocumented("A device of several is lost",
                           "UNAVAILABLE: " + said.substr(said.find("worker lost")));
  EXPECT_NE(said.find("(device 0 of node-2#"), std::string::npos) << said;
  for (const int node : {0, 1})
    EXPECT_TRUE(Eventually([&] {
      return DescendantsNamed(nodes_[node]->pid(), "executor").size() == 1;
    })) << "its executor ends with the session";
  auto next = ConnectTo(2);
  ASSERT_NE(next, nullptr) << "what is left of the fleet goes on";
  EXPECT_TRUE(Step(*next).ok());
}

TEST_F(SeveralWorkersTest, ALostExecutor_IsNamedWithItsWorker) {
  StartNodes(2, 1, "--snapshot-every 0");
  auto session = ConnectTo(2);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Step(*session).ok());
  std::vector<int> executors = DescendantsNamed(nodes_[1]->pid(), "executor");
  std::sort(executors.begin(), executors.end());  // the youngest is the spare one
  kill(executors.front(), SIGKILL);
  const absl::Status why = FailureOf(*session);
  EXPECT_EQ(why.code(), StatusCode::kUnavailable);
  test::ExpectAsDocumented("A device of several is lost", why);
  EXPECT_NE(why.message().find("(device 0 of node-1#"), std::string::npos) << why;
}

// With snapshots it costs a moment, and no bit: first an executor, then the whole worker, whose
// part another one takes over.
TEST_F(SeveralWorkersTest, WhatIsLost_IsReplacedAndChangesNoBit) {
  StartNodes(3, 1);
  const auto open = [&] {
    session::SessionOptions options = cluster_.Options();
    options.devices = 2;
    options.spread = test::RowSums::kSpread;
    return std::make_unique<test::RowSums>(ValueOrDie(Session::Connect(options)));
  };
  constexpr int kSteps = 60;
  std::vector<std::string> expected;
  {
    auto undisturbed = open();
    for (int i = 0; i < kSteps; ++i) expected.push_back(ValueOrDie(undisturbed->Step()));
    ASSERT_TRUE(undisturbed->session().Close().ok());
  }
  ASSERT_TRUE(Eventually([&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
      return DescendantsNamed(node->pid(), "executor").size() == 1;
    });
  }));
  auto program = open();
  for (int i = 0; i < kSteps; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that there are snapshots
    if (i == 30 || i == 50) {
      int node = 0;
      std::vector<int> executors;
      ASSERT_TRUE(Eventually([&] {
        return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& one) {
          node = one->pid();
          return (executors = DescendantsNamed(node, "executor")).size() == 2;
        });
      }));
      std::sort(executors.begin(), executors.end());
      kill(i == 30 ? executors.front() : node, SIGKILL);
    }
    const absl::StatusOr<std::string> value = program->Step();
    ASSERT_TRUE(value.ok()) << i << ": " << value.status();
    EXPECT_EQ(*value, expected[i]) << "step " << i;
  }
  EXPECT_TRUE(program->session().Close().ok());
}

// Alone it has too few devices.
TEST_F(SeveralWorkersTest, AWorkerWithoutADataAddress_HasNoPartOfASession) {
  cluster_.StartGateway();
  nodes_.push_back(StartNode(0, "--data-address 127.0.0.1:0"));
  nodes_.push_back(StartNode(1, ""));
  session::SessionOptions options = cluster_.Options();
  options.devices = 2;
  const absl::Status why = Session::Connect(options).status();
  EXPECT_EQ(why.code(), StatusCode::kResourceExhausted) << why;
}

TEST_F(SeveralWorkersTest, ADataAddressOfAnotherHost_IsSaidAtTheStart) {
  for (const char* address : {"203.0.113.9:0", "0.0.0.0:0", "here:0", "127.0.0.1"}) {
    const test::Ended worker =
        Outboard(std::string("worker --gateway 127.0.0.1:1 --data-address ") + address,
                 {"OUTBOARD_FLEET_SECRET=" + std::string(64, 'a')});
    EXPECT_NE(worker.code, 0);
    EXPECT_NE(worker.err.find("--data-address: "), std::string::npos) << worker.err;
  }
}

// That it is used where it is one: tests/shelf.
TEST_F(SeveralWorkersTest, AnAdvertisedAddressThatIsNone_IsSaidAtTheStart) {
  for (const char* options :
       {"--data-address 127.0.0.1:0 --advertise-data-address box:4000",
        "--data-address 127.0.0.1:0 --advertise-data-address 10.0.0.7:0",
        "--advertise-data-address 10.0.0.7:4000"}) {
    const test::Ended worker =
        Outboard(std::string("worker --gateway 127.0.0.1:1 ") + options,
                 {"OUTBOARD_FLEET_SECRET=" + std::string(64, 'a')});
    EXPECT_NE(worker.code, 0);
    EXPECT_NE(worker.err.find("--advertise-data-address"), std::string::npos) << worker.err;
  }
}

}  // namespace
}  // namespace outboard
