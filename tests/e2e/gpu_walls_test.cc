// Executors whose device has a driver, behind their walls (docs/sandbox.md), as the operator of a
// worker sees them: who is served, what their processes have, and what is said where the driver
// does not work there.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/e2e/gpu_cluster.h"
#include "tests/support/processes.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard {
namespace {

class GpuWalls : public test::GpuCluster {
 protected:
  void SetUp() override {
    if (worker::kIsSanitizersBuild) GTEST_SKIP() << "a sanitizer's build has no sandbox";
    if (!worker::GrantedParts().all())
      GTEST_SKIP() << "this machine does not grant: "
                   << worker::MissingParts(worker::GrantedParts());
  }
  // Without --shared-anyway: what is missing counts.
  void StartUp(std::vector<std::string> environment) {
    cluster_.StartUp(1, "--no-idle-search", std::move(environment));
  }
  std::vector<int> Executors() {
    return test::DescendantsNamed(cluster_.gateway().pid(), "executor");
  }
  static std::string StatusOf(int pid) {
    return test::ReadFile("/proc/" + std::to_string(pid) + "/status");
  }
  void ExpectOneAccountAndALine(const std::string& why) {
    EXPECT_TRUE(Contains(Log(), "sandbox_incomplete")) << Log();
    EXPECT_TRUE(Contains(Log(), why)) << Log();
    EXPECT_TRUE(Contains(Log(), "one account at a time")) << Log();
    const auto session = Connect();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(test::Step(*session).ok()) << Log();
    for (const int pid : Executors())
      EXPECT_TRUE(Contains(StatusOf(pid), "Seccomp:\t0")) << StatusOf(pid);
  }
};

TEST_F(GpuWalls, ADriverThatWorksThere_SeveralAccountsAreServedBehindThem) {
  StartUp(Driver(2));
  EXPECT_FALSE(Contains(Log(), "sandbox_incomplete")) << Log();
  const auto mine = Connect(), others = ConnectOther();
  ASSERT_NE(mine, nullptr);
  ASSERT_NE(others, nullptr);
  EXPECT_TRUE(test::Step(*mine).ok()) << Log();
  EXPECT_TRUE(test::Step(*others).ok()) << Log();
  const std::vector<int> executors = Executors();
  EXPECT_EQ(executors.size(), 2u);
  for (const int pid : executors) {
    const std::string status = StatusOf(pid), folder = "/proc/" + std::to_string(pid);
    EXPECT_TRUE(Contains(status, "Seccomp:\t2")) << status;
    EXPECT_TRUE(Contains(status, "CapEff:\t0000000000000000")) << status;
    for (const char* const name : {"user", "mnt", "pid", "ipc", "uts", "net", "cgroup"}) {
      std::error_code error;
      const auto own = std::filesystem::read_symlink(folder + "/ns/" + name, error);
      if (error) continue;  // of another user, to one who is not root
      EXPECT_NE(own, std::filesystem::read_symlink(std::string("/proc/self/ns/") + name)) << name;
    }
  }
}

TEST_F(GpuWalls, ADriverThatNeedsAFileOutside_IsUsedWithoutThemAndItIsSaid) {
  const test::TempFolder outside;
  StartUp(Driver(1, {"OUTBOARD_FAKE_CUDA_NOTES=" + (outside / "notes")}));
  ExpectOneAccountAndALine("the tests' driver cannot open its file " + (outside / "notes"));
}

TEST_F(GpuWalls, ADriverThatShowsFewerDevicesThere_IsUsedWithoutThemAndItIsSaid) {
  const test::TempFolder outside;
  std::ofstream(outside / "device") << "x";
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_DEVICE_FILE=" + (outside / "device")}));
  ExpectOneAccountAndALine("it shows 1 of 2 devices there");
}

// What fails with the walls and without is not theirs: they stay, and nothing is said of them.
TEST_F(GpuWalls, ADriverThatWorksNowhere_KeepsThem) {
  std::vector<std::string> environment = Driver(1, {"OUTBOARD_FAKE_CUDA_FAULTS=start:1"});
  environment.push_back("OUTBOARD_DEVICE_SECONDS=1");
  StartUp(environment);
  EXPECT_FALSE(Contains(Log(), "sandbox_incomplete")) << Log();
  EXPECT_TRUE(test::Eventually([&] { return Contains(Log(), "device_failed device=0"); })) << Log();
}

// Nobody waits in vain while the driver is tried.
TEST_F(GpuWalls, ADriverThatHangs_CtrlCEndsUp) {
  std::vector<std::string> environment = Driver(1, {"OUTBOARD_FAKE_CUDA_FAULTS=start:1"});
  environment.push_back("OUTBOARD_DEVICE_SECONDS=120");
  test::Process up({test::kOutboardProgram, "up", "--port", "0", "--workers", "1",
                    "--no-idle-search", "--data", cluster_.data()},
                   std::move(environment));
  // Its worker has an executor, which tries.
  ASSERT_TRUE(test::Eventually([&] {
    return !test::DescendantsNamed(up.pid(), "executor").empty();
  })) << up.err();
  kill(up.pid(), SIGINT);
  EXPECT_TRUE(test::Eventually([&] { return !test::IsAlive(up.pid()); }, 10)) << up.err();
}

}  // namespace
}  // namespace outboard
