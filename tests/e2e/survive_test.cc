// A training in whose middle something dies: it ends with the weights that it would have had, to
// the last bit, and nobody is billed for the time between.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/lost_test.h"
#include "tests/support/paths.h"

namespace outboard {
namespace {

using test::DescendantsNamed;
using test::Eventually;
using test::LostTest;

constexpr char kSteps[] = "3000", kStepsOfSomeHeartbeats[] = "8000";

class SurviveTest : public LostTest {
 protected:
  std::unique_ptr<test::Process> StartTraining() {
    return std::make_unique<test::Process>(
        std::vector<std::string>{test::kSmallTrainerProgram, kSteps},
        std::vector<std::string>{"CLOUD=1", "CLOUD_HOST=" + cluster_.target(),
                                 "CLOUD_KEY=" + cluster_.key()});
  }
  static void AwaitStep(test::Process& training, int step) {
    ASSERT_TRUE(Eventually([&] {
      return training.out().find("step " + std::to_string(step) + ":") != std::string::npos;
    })) << training.err();
  }
  // Nothing happens to this one.
  std::string Undisturbed() {
    auto training = StartTraining();
    EXPECT_EQ(training->Wait(), 0) << training->err();
    return ResultOf(*training);
  }
  // What it printed but for the bill: losses and weights.
  static std::string ResultOf(const test::Process& training) {
    const std::string out = training.out();
    const size_t weights = out.find("weights ");
    EXPECT_NE(weights, std::string::npos) << out;
    return out.substr(0, out.find('\n', weights));
  }
};

TEST_F(SurviveTest, AGatewayThatIsKilledAndStartedAgain) {
  cluster_.StartGateway();
  cluster_.key();
  auto worker = cluster_.StartWorker("--no-idle-search");
  const std::string expected = Undisturbed();
  auto training = StartTraining();
  AwaitStep(*training, 300);
  const std::vector<int> executors = DescendantsNamed(worker->pid(), "executor");
  cluster_.gateway().Stop(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  cluster_.StartGateway();
  AwaitStep(*training, 900);
  for (int pid : executors) EXPECT_TRUE(test::IsAlive(pid)) << "an executor ended with the gateway";
  cluster_.gateway().Stop(SIGKILL);  // and again
  cluster_.StartGateway();
  EXPECT_EQ(training->Wait(), 0) << training->err();
  EXPECT_EQ(ResultOf(*training), expected);
  auto next = cluster_.Connect();
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(test::Step(*next).ok());
}

// Before the first snapshot the client has all of it, and after it the rest.
TEST_F(SurviveTest, AnExecutorThatIsKilled) {
  cluster_.StartUp(1, "--no-idle-search --snapshot-every 1");
  const std::string expected = Undisturbed();
  auto training = StartTraining();
  for (int step : {50, 900}) {
    AwaitStep(*training, step);
    // The youngest, which is spare, goes first: once the session's own has ended it is the next.
    std::vector<int> executors = DescendantsNamed(cluster_.gateway().pid(), "executor");
    std::ranges::reverse(executors);
    for (int pid : executors) kill(pid, SIGKILL);
  }
  EXPECT_EQ(training->Wait(), 0) << training->err();
  EXPECT_EQ(ResultOf(*training), expected);
  test::ExpectAsDocumented("A worker or an executor is lost, and the gateway takes snapshots",
                           training->err());
}

TEST_F(SurviveTest, AWorkerThatIsKilledWhileAnotherIsThere) {
  cluster_.StartUp(2, "--no-idle-search --snapshot-every 1");
  const std::string expected = Undisturbed();
  auto training = StartTraining();
  AwaitStep(*training, 400);
  const std::vector<int> first = DescendantsNamed(cluster_.gateway().pid(), "--name local-0");
  ASSERT_EQ(first.size(), 1u);
  kill(first[0], SIGKILL);
  EXPECT_EQ(training->Wait(), 0) << training->err();
  EXPECT_EQ(ResultOf(*training), expected);
}

// SIGTERM: it says so, its session goes on elsewhere from a snapshot, and it ends in order.
TEST_F(SurviveTest, AWorkerThatIsToldToEndWhileAnotherIsThere) {
  cluster_.StartGateway("--snapshot-every 3600");  // none but the one that the drain asks for
  cluster_.key();
  auto first = cluster_.StartWorker("--no-idle-search --name first");
  const std::string expected = Undisturbed();
  auto training = StartTraining();
  AwaitStep(*training, 300);
  auto second = cluster_.StartWorker("--no-idle-search --name second");
  EXPECT_EQ(first->Stop(SIGTERM), 0) << first->err();
  EXPECT_NE(first->err().find("worker_drained"), std::string::npos) << first->err();
  EXPECT_NE(first->err().find("is_empty=true"), std::string::npos) << first->err();
  EXPECT_EQ(training->Wait(), 0) << training->err();
  EXPECT_EQ(ResultOf(*training), expected);
}

// Workers count too: what is billed is within what they signed, and the client can check it.
TEST_F(SurviveTest, TheBillOfAWorkerThatIsKilledVerifies) {
  cluster_.StartGateway("--snapshot-every 1");
  const std::string key = cluster_.key(), heads = cluster_.folder() / "heads";
  auto worker = cluster_.StartWorker("--no-idle-search");
  auto training = std::make_unique<test::Process>(
      std::vector<std::string>{test::kSmallTrainerProgram, kStepsOfSomeHeartbeats},
      std::vector<std::string>{"CLOUD=1", "CLOUD_HOST=" + cluster_.target(), "CLOUD_KEY=" + key,
                               "CLOUD_HEADS=" + heads});
  AwaitStep(*training, 500);
  const std::vector<std::string> environment = {"CLOUD_KEY=" + key, "CLOUD_HEADS=" + heads};
  // Only time that a heartbeat has confirmed is billed: without one the first lease would be free.
  ASSERT_TRUE(Eventually([&] {
    const auto sessions = test::Outboard("ps --json --gateway " + cluster_.target(), environment);
    return sessions.out.find("\"cost_micro_usd\": ") != std::string::npos &&
           sessions.out.find("\"cost_micro_usd\": 0") == std::string::npos;
  }));
  worker->Stop(SIGKILL);
  worker = cluster_.StartWorker("--no-idle-search");
  EXPECT_EQ(training->Wait(), 0) << training->err();
  EXPECT_TRUE(std::filesystem::exists(heads));
  const auto verify = [&] {
    return test::Outboard("invoice --verify --json --gateway " + cluster_.target(), environment);
  };
  ASSERT_TRUE(Eventually([&] {  // the last receipt is under way for a moment
    return verify().out.find("\"leases_with_receipts\": 2") != std::string::npos;
  })) << verify().out
      << verify().err;
  EXPECT_EQ(verify().code, 0) << verify().err;
  EXPECT_EQ(verify().out.find("\"heads_compared\": 0}"), std::string::npos) << verify().out;
  EXPECT_EQ(test::Outboard("audit --data " + cluster_.data()).code, 0);
  // A head of a ledger that the gateway has not: as after it was put back.
  cluster_.gateway().Stop(SIGTERM);
  for (const char* file : {"outboard.db", "outboard.db-wal", "outboard.db-shm", "audited-head"})
    std::filesystem::remove(cluster_.data() + "/" + file);
  EXPECT_EQ(test::Outboard("key create --data " + cluster_.data()).code, 0);
  const auto found = test::Outboard("invoice --verify --data " + cluster_.data(), environment);
  EXPECT_EQ(found.code, 1) << found.out;
  EXPECT_NE(found.err.find("the end is cut"), std::string::npos) << found.err;
}

// Gateway and worker at once: what is left is the client and the data folder.
TEST_F(SurviveTest, AllServersThatAreKilled) {
  cluster_.StartGateway("--snapshot-every 1");
  cluster_.key();
  auto worker = cluster_.StartWorker("--no-idle-search");
  const std::string expected = Undisturbed();
  auto training = StartTraining();
  AwaitStep(*training, 900);
  cluster_.gateway().Stop(SIGKILL);
  worker->Stop(SIGKILL);
  cluster_.StartGateway("--snapshot-every 1");
  worker = cluster_.StartWorker("--no-idle-search");
  EXPECT_EQ(training->Wait(), 0) << training->err();
  EXPECT_EQ(ResultOf(*training), expected);
}

}  // namespace
}  // namespace outboard
