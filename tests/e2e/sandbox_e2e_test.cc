// Workers with and without all of the sandbox, as their operator sees them: what is said at the
// start, whose sessions are taken, and what an executor's process has.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/cores.h"
#include "client/session/session.h"
#include "tests/support/cluster.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/supervisor/core_sets.h"

namespace outboard {
namespace {

using test::Eventually;
using test::Outboard;

// Runs a program in a user namespace in which no other can be made: a kernel that refuses them.
const std::vector<std::string> kWithoutUserNamespaces = {
    "/usr/bin/unshare", "-Ur", "/bin/sh", "-c",
    "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\""};

std::vector<std::string> Joined(std::vector<std::string> first, std::vector<std::string> more) {
  for (std::string& word : more) first.push_back(std::move(word));
  return first;
}

// "0-1" of a process's status.
std::string CoresIn(const std::string& status) {
  const std::string name = "Cpus_allowed_list:\t";
  const size_t at = status.find(name) + name.size();
  return status.substr(at, status.find('\n', at) - at);
}

class SandboxE2eTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (worker::kIsSanitizersBuild) GTEST_SKIP() << "a sanitizer's build has no sandbox";
    cluster_.StartGateway();
    const test::Ended made = Outboard("key create --account other --data " + cluster_.data());
    other_key_ = made.out.substr(0, made.out.find('\n'));
  }

  std::unique_ptr<test::Process> StartWithoutUserNamespaces(const std::string& more) {
    const std::string ready = cluster_.folder() / "ready";
    auto process = std::make_unique<test::Process>(
        Joined(Joined(kWithoutUserNamespaces, {test::kOutboardProgram}),
               test::Words("worker --gateway " + cluster_.fleet_target() + " --fleet-secret-file " +
                           cluster_.data() + "/fleet.secret --identity-file " +
                           cluster_.folder() / "identity" + " --ready-file " + ready +
                           " --life-fd " + std::to_string(test::kLifeFd) + " " + more)));
    Eventually([&] { return std::filesystem::exists(ready) || !test::IsAlive(process->pid()); });
    return process;
  }

  absl::StatusOr<std::unique_ptr<Session>> ConnectOther() {
    session::SessionOptions options = cluster_.Options();
    options.key = other_key_;
    return Session::Connect(options);
  }

  // Another account waits until the first one's session has ended.
  void ExpectOneAccountAtATime() {
    std::unique_ptr<Session> first = cluster_.Connect(), second = cluster_.Connect();
    EXPECT_TRUE(test::Step(*first).ok());
    EXPECT_TRUE(test::Step(*second).ok());
    second.reset();
    auto other = std::async(std::launch::async, [&] { return ConnectOther(); });
    EXPECT_EQ(other.wait_for(std::chrono::seconds(1)), std::future_status::timeout);
    EXPECT_TRUE(first->Close().ok());
    auto connected = other.get();
    ASSERT_TRUE(connected.ok()) << connected.status();
    EXPECT_TRUE(test::Step(**connected).ok());
  }

  test::Cluster cluster_;
  std::string other_key_;
};

TEST_F(SandboxE2eTest, KernelWithoutUserNamespaces_ServesOneAccountAtATime) {
  if (test::RunToEnd(Joined(kWithoutUserNamespaces, {"/bin/true"})).code != 0)
    GTEST_SKIP() << "this machine makes no user namespace in which others can be refused";
  const auto worker = StartWithoutUserNamespaces("--devices 2");
  const std::string said = worker->err();
  EXPECT_NE(said.find("the kernel does not grant a user of its own"), std::string::npos) << said;
  EXPECT_NE(said.find("one account at a time"), std::string::npos) << said;
  ExpectOneAccountAtATime();
}

TEST_F(SandboxE2eTest, SandboxOff_ServesOneAccountAtATime) {
  const auto worker = cluster_.StartWorker("--devices 2", {"OUTBOARD_SANDBOX=0"});
  EXPECT_NE(worker->err().find("there is no sandbox"), std::string::npos) << worker->err();
  ExpectOneAccountAtATime();
}

TEST_F(SandboxE2eTest, SharedAnyway_ServesSeveralAndSaysSo) {
  const auto worker = cluster_.StartWorker("--devices 2 --shared-anyway", {"OUTBOARD_SANDBOX=0"});
  EXPECT_NE(worker->err().find("not walled off"), std::string::npos) << worker->err();
  const std::unique_ptr<Session> first = cluster_.Connect();
  const auto other = ConnectOther();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(test::Step(*first).ok());
  EXPECT_TRUE(test::Step(**other).ok());
}

TEST_F(SandboxE2eTest, AllWalls_SeveralAccountsAndNothingIsSaid) {
  if (!worker::GrantedParts().all())
    GTEST_SKIP() << "this machine does not grant: " << worker::MissingParts(worker::GrantedParts());
  const auto worker = cluster_.StartWorker("--devices 2");
  EXPECT_EQ(worker->err().find("account"), std::string::npos) << worker->err();
  const std::unique_ptr<Session> first = cluster_.Connect();
  const auto other = ConnectOther();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(test::Step(*first).ok());
  EXPECT_TRUE(test::Step(**other).ok());
  // Two executors and a spare, each in namespaces of its own, and as little of the machine's.
  std::vector<int> executors;
  EXPECT_TRUE(Eventually([&] {  // the spare may be started later
    return (executors = test::DescendantsNamed(worker->pid(), "executor")).size() == 3;
  })) << executors.size();
  std::vector<std::string> seen, cores;
  for (const int pid : executors) {
    const std::string folder = "/proc/" + std::to_string(pid);
    std::string all;
    EXPECT_TRUE(Eventually([&] {  // the spare may be on its way in
      all = test::ReadFile(folder + "/status");
      return all.find("Seccomp:\t2") != std::string::npos;
    })) << all;
    EXPECT_NE(all.find("NoNewPrivs:\t1"), std::string::npos) << all;
    cores.push_back(CoresIn(all));
    EXPECT_NE(all.find("CapEff:\t0000000000000000"), std::string::npos) << all;
    for (const char* const name : {"user", "mnt", "pid", "ipc", "uts", "net"}) {
      std::error_code error;
      const auto own = std::filesystem::read_symlink(folder + "/ns/" + name, error);
      if (error) continue;  // of another user, to one who is not root
      EXPECT_NE(own, std::filesystem::read_symlink(std::string("/proc/self/ns/") + name)) << name;
      seen.push_back(own.string());
    }
  }
  // With two cores each session has one of them, and the spare one of the two.
  if (UsableCores().size() == 2) {
    std::sort(cores.begin(), cores.end());
    cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
    std::vector<std::string> each;
    for (const int core : UsableCores()) each.push_back(std::to_string(core));
    EXPECT_EQ(cores, each);
  }
  const size_t count = seen.size();
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  EXPECT_EQ(seen.size(), count) << "two executors share a namespace";
}

// Workers of one machine that know nothing of each other: each has physical cores of its own, and
// so have its executors.
TEST(UpE2eTest, SeveralWorkers_HaveCoresOfTheirOwn) {
  const std::vector<int> usable = UsableCores();
  if (worker::PhysicalCores(usable).size() < 2) GTEST_SKIP() << "this machine has one core";
  test::Cluster cluster;
  cluster.StartUp(2);
  // Its children: of theirs one that has yet to become its program bears a worker's name, too.
  const std::vector<int> workers = test::ChildrenOf(cluster.gateway().pid());
  ASSERT_EQ(workers.size(), 2u);
  std::vector<int> all;
  for (const int pid : workers) {
    const std::string cores = CoresIn(test::ReadFile("/proc/" + std::to_string(pid) + "/status"));
    const auto numbers = worker::ParseCoreList(cores);
    ASSERT_TRUE(numbers.has_value()) << cores;
    all.insert(all.end(), numbers->begin(), numbers->end());
    for (const int executor : test::DescendantsNamed(pid, "executor"))
      EXPECT_EQ(CoresIn(test::ReadFile("/proc/" + std::to_string(executor) + "/status")), cores);
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, usable) << "all cores, and none twice";
}

}  // namespace
}  // namespace outboard
