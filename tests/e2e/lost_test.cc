// Servers that are killed or interrupted in the middle of somebody's steps: what the user is
// told, what is billed, and that everybody else goes on.
#include "tests/e2e/lost_test.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace outboard {
namespace {

using absl::StatusCode;
using test::DescendantsNamed;
using test::Eventually;
using test::LostTest;
using test::Step;

TEST_F(LostTest, AKilledWorkerCostsItsSessionsOnly) {
  cluster_.StartUp(2, "--snapshot-every 0");
  auto a = cluster_.Connect(), b = cluster_.Connect();
  ASSERT_TRUE(a != nullptr && b != nullptr);
  ASSERT_TRUE(Step(*a).ok() && Step(*b).ok());
  const std::vector<int> first = DescendantsNamed(cluster_.gateway().pid(), "--name local-0");
  ASSERT_EQ(first.size(), 1u);
  kill(first[0], SIGKILL);
  ASSERT_TRUE(Eventually([&] { return !Step(*a).ok() || !Step(*b).ok(); }));
  const bool lost_a = !a->status().ok();
  Session& lost = lost_a ? *a : *b;
  Session& kept = lost_a ? *b : *a;
  test::ExpectAsDocumented("A worker is lost", FailureOf(lost));
  EXPECT_TRUE(Step(kept).ok()) << Step(kept);
  auto next = cluster_.Connect();  // `up` starts the worker again
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(Step(*next).ok());
  EXPECT_TRUE(Step(kept).ok());
}

TEST_F(LostTest, AKilledExecutorCostsItsSessionOnly) {
  cluster_.StartUp(1, "--snapshot-every 0");
  auto a = cluster_.Connect();
  ASSERT_NE(a, nullptr);
  ASSERT_TRUE(Step(*a).ok());
  for (int pid : DescendantsNamed(cluster_.gateway().pid(), "executor")) kill(pid, SIGKILL);
  test::ExpectAsDocumented("An executor ends", FailureOf(*a));
  auto next = cluster_.Connect();
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(Step(*next).ok());
}

TEST_F(LostTest, AKilledCompileProcessIsNotNoticed) {
  cluster_.StartUp(1);
  auto session = cluster_.Connect();
  ASSERT_NE(session, nullptr);
  for (int pid : DescendantsNamed(cluster_.gateway().pid(), "outboard-compiler"))
    kill(pid, SIGKILL);
  EXPECT_TRUE(Step(*session).ok()) << Step(*session);
}

// What the descriptors of a process are, from `lowest` on. Empty: they cannot be seen.
std::set<std::string> DescriptorsOf(const std::string& pid, int lowest) {
  std::set<std::string> targets;
  std::error_code denied;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + pid + "/fd", denied))
    if (std::stoi(entry.path().filename()) >= lowest)
      targets.insert(std::filesystem::read_symlink(entry.path(), denied));
  return targets;
}

// What an executor holds in the middle of its session: sockets to its supervisor and its gateway,
// and the file without a name into which it writes what is to be stored; nothing by which it
// reaches a file that others have, or a process of the machine.
TEST_F(LostTest, AnExecutorHasNoFilesAndNoChildren) {
  const std::set<std::string> inherited = DescriptorsOf("self", /*lowest=*/0);
  cluster_.StartUp(1);
  auto session = cluster_.Connect();
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Step(*session).ok()) << "which has compiled a kernel";
  EXPECT_FALSE(DescendantsNamed(cluster_.gateway().pid(), "outboard-compiler").empty());
  std::vector<int> executors;
  ASSERT_TRUE(Eventually([&] {
    return (executors = DescendantsNamed(cluster_.gateway().pid(), "executor")).size() == 2;
  })) << "one is spare, and may come later";
  for (const int pid : executors) {
    EXPECT_TRUE(test::ChildrenOf(pid).empty());
    const std::set<std::string> descriptors = DescriptorsOf(std::to_string(pid), /*lowest=*/3);
    if (descriptors.empty()) GTEST_SKIP() << "another process's descriptors cannot be seen here";
    for (const std::string& target : descriptors) {
      if (inherited.contains(target)) continue;  // of whatever started this test
      EXPECT_TRUE(target.starts_with("socket:") || target.starts_with("anon_inode:") ||
                  target.ends_with(" (deleted)"))
          << target;
    }
  }
}

TEST_F(LostTest, AKilledGatewayIsSaidSoAndItsBooksAreGood) {
  cluster_.StartGateway();
  cluster_.key();
  auto worker = cluster_.StartWorker();
  const auto opened = std::chrono::steady_clock::now();
  auto stepper = StartStepper({"STEPPER_RECONNECT_MS=1500"});
  // Once there is something on the books.
  ASSERT_TRUE(Eventually([&] { return BilledSeconds() >= 5; }));
  cluster_.gateway().Stop(SIGKILL);
  EXPECT_EQ(stepper->Wait(), 1);
  const auto elapsed = std::chrono::steady_clock::now() - opened;
  test::ExpectAsDocumented("The gateway is gone: while the client tries", stepper->err());
  test::ExpectAsDocumented("The gateway is gone: in the end", stepper->err());
  EXPECT_NE(stepper->err().find(cluster_.target()), std::string::npos);
  EXPECT_TRUE(test::IsAlive(worker->pid()));

  cluster_.StartGateway();  // at the same address; the worker finds it
  // What was charged stays; what was not is the operator's loss (decision 020).
  const int64_t billed = BilledSeconds();
  EXPECT_GE(billed, 5);
  EXPECT_EQ(billed % 5, 0);
  EXPECT_LE(billed, std::chrono::duration_cast<std::chrono::seconds>(elapsed).count());
  EXPECT_TRUE(cluster_.Books()->Verify().ok());
  auto next = cluster_.Connect();
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(Step(*next).ok());
  EXPECT_EQ(worker->Stop(SIGINT), 0);
}

TEST_F(LostTest, AServeThatIsStartedAgainSaysThatTheSessionEndedWithIt) {
  const std::string command =
      "serve --no-auth --listen unix:" + (cluster_.folder() / "s") + " --data " + cluster_.data();
  auto serve = cluster_.Start(command);
  session::SessionOptions options;
  options.target = cluster_.last_address();
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Step(**session).ok());
  serve->Stop(SIGKILL);
  serve = cluster_.Start(command);
  test::ExpectAsDocumented("`outboard serve` was started again", FailureOf(**session));
}

TEST_F(LostTest, AnInterruptedWorkerAndGatewayEndInOrder) {
  cluster_.StartGateway("--drain 0 --snapshot-every 0");
  auto worker = cluster_.StartWorker();
  auto stepper = StartStepper();
  const std::vector<int> family = test::FamilyOf(worker->pid());
  EXPECT_EQ(worker->Stop(SIGINT), 0);
  const std::string log = worker->err();  // events, and nothing that went wrong
  for (const char* wrong : {"level=warning", "level=error", "outboard: "})
    EXPECT_EQ(log.find(wrong), std::string::npos) << log;
  EXPECT_EQ(stepper->Wait(), 1);
  test::ExpectAsDocumented("A worker is lost", stepper->err());
  EXPECT_EQ(cluster_.gateway().Stop(SIGINT), 0);
  for (int pid : family) EXPECT_TRUE(Eventually([&] { return !test::IsAlive(pid); })) << pid;
}

TEST_F(LostTest, AnInterruptedGatewayEndsItsSessionsWithTheBill) {
  cluster_.StartGateway("--drain 1");
  auto worker = cluster_.StartWorker();
  auto stepper = StartStepper();
  EXPECT_EQ(cluster_.gateway().Stop(SIGTERM), 0);
  EXPECT_EQ(stepper->Wait(), 1);
  test::ExpectAsDocumented("The gateway is stopped", stepper->err());
}

TEST_F(LostTest, ASecondInterruptDoesNotWaitForTheDrain) {
  cluster_.StartGateway("--drain 3600");
  auto worker = cluster_.StartWorker("--devices 2");
  auto session = cluster_.Connect();
  ASSERT_NE(session, nullptr);
  const int pid = cluster_.gateway().pid();
  cluster_.gateway().Signal(SIGINT);
  // No new sessions: it has heard the first.
  ASSERT_TRUE(Eventually([&] { return !Session::Connect(cluster_.Options()).ok(); }));
  EXPECT_TRUE(test::IsAlive(pid));
  EXPECT_TRUE(Step(*session).ok());  // which is what it waits for
  EXPECT_EQ(cluster_.gateway().Stop(SIGINT), 128 + SIGINT);
}

}  // namespace
}  // namespace outboard
