// The walls of an executor whose device has a driver (worker/sandbox/driver_root.h, driver_calls.h)
// against a program that runs code of its own behind them (sandbox_attempts_main.cc): with all
// walls, and where the kernel grants fewer.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/heard.h"
#include "tests/worker/sandbox_attempts.h"
#include "worker/process/child_process.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/sandbox/sandbox_limits.h"
#include "worker/supervisor/driver_trial.h"

namespace outboard::worker {
namespace {

using test::Hear;
using test::SandboxAttempt;

SandboxParts Without(std::initializer_list<SandboxPart> parts) {
  SandboxParts left = SandboxParts::All();
  for (const SandboxPart part : parts) left.Remove(part);
  return left;
}

// What the kernel grants of a test's walls.
struct Granted {
  const char* name;
  SandboxParts parts;
  bool by_root_alone = false;
};

class DriverWalls : public ::testing::TestWithParam<Granted> {
 protected:
  void SetUp() override {
    if (kIsSanitizersBuild) GTEST_SKIP() << "a sanitizer's build has no sandbox";
    if (!GrantedParts().all())
      GTEST_SKIP() << "this machine does not grant: " << MissingParts(GrantedParts());
    if (GetParam().by_root_alone && geteuid() != 0) GTEST_SKIP() << "what root alone can do";
    // Never this test's own; this user's, as a blob is that is passed.
    output_ = open(output_path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0400);
    // In a folder that is this user's alone, as a ledger's is.
    std::ofstream(secret()) << "secret";
    std::filesystem::copy_file(test::kFakeCuda, driver());
    // This user's own: what it may do with the file its executors might.
    std::filesystem::copy_file(test::kSandboxAttemptsProgram, program());
    std::ofstream(driver() + ".env") << "OUTBOARD_FAKE_CUDA_MIB=64\n";
    setenv("OUTBOARD_DEVICE", "cuda", 1);
    setenv("OUTBOARD_CUDA_DRIVER", driver().c_str(), 1);
  }
  void TearDown() override {
    unsetenv("OUTBOARD_DEVICE");
    unsetenv("OUTBOARD_CUDA_DRIVER");
    if (output_ >= 0) close(output_);
  }

  std::string secret() const { return folder_ / "ledger.db"; }
  std::string driver() const { return folder_ / "libcuda.so.1"; }
  std::string output_path() const { return folder_ / "output"; }
  std::string program() const { return folder_ / "sandbox_attempts"; }

  ChildProcess Start(const std::string& mode) {
    auto child = ChildProcess::Start(
        {program(), mode, std::to_string(getpid()), "1", secret(), "none"},
        {.profile = SandboxProfile::kExecutor, .output = output_, .parts = GetParam().parts});
    EXPECT_TRUE(child.ok()) << child.status();
    return child.ok() ? *std::move(child) : ChildProcess();
  }

  test::TempFolder folder_;
  int output_ = -1;
};

// What the strict list of other processes stops and a driver may need: all of it is the process's
// own, and leads nowhere outside.
const std::set<std::string> kDriversMay = {
    "open a unix socket",
    "make a socket pair",
    "read /proc/self/environ",
    "share memory (System V)",
    "make a file in memory",
    "map memory that is writable and executable",
    "map executable memory",
    "make memory writable and executable",
    "make memory executable",
    "map memory that no limit counts (shared)",
    "map memory that no limit counts (growing down)",
    // An executor's output is a pipe of its own.
    "shut the supervisor's log down",
    "shut it down by a number of 64 bits",
    "copy the supervisor's log (fcntl)",
    "copy the supervisor's log (dup3)",
    "write over the supervisor's log",
    "empty the supervisor's log",
};

TEST_P(DriverWalls, EveryAttempt_IsStopped) {
  const SandboxParts parts = GetParam().parts;
  const bool has_filter = parts.has(SandboxPart::kSystemCalls);
  ChildProcess child = Start(has_filter ? "attempts" : "attempts-other-walls");
  const auto stopped = Hear(child);
  ASSERT_TRUE(stopped.contains("end")) << child.Stop();
  for (const SandboxAttempt& attempt : test::SandboxAttempts()) {
    if (kDriversMay.contains(attempt.name) || !stopped.contains(attempt.name)) continue;
    // Among processes that it may not signal kill(-1) signals none, and says that it succeeded.
    if (!parts.has(SandboxPart::kProcesses) && attempt.name == std::string("signal every process"))
      continue;
    const auto error = static_cast<int>(stopped.at(attempt.name));
    EXPECT_NE(error, 0) << attempt.name << " succeeded";
    std::printf("  %-50s %s\n", attempt.name, strerror(error));
  }
  EXPECT_EQ(test::ReadFile(secret()), "secret");
  struct stat output {};
  ASSERT_EQ(stat(output_path().c_str(), &output), 0);
  EXPECT_EQ(output.st_mode & 07777, 0400u);
}

// Behind the walls of a worker that is not root's, its executors' id is outside that of its owner.
TEST(DriverWallsOfAnotherUser, EveryAttempt_IsStopped) {
  if (geteuid() != 0) GTEST_SKIP() << "this user is not root, and the other tests show it";
  constexpr uid_t kUser = 12345;
  constexpr int kOutOfReach = 77;
  const int self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
  ASSERT_GE(self, 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const bool is_other = setgroups(0, nullptr) == 0 && setgid(kUser) == 0 && setuid(kUser) == 0;
    if (!is_other || chdir("/") != 0) _exit(1);
    unsetenv("GTEST_OUTPUT");  // where the other user may not write, the tests would not begin
    for (const char* const file : {test::kFakeCuda, test::kSandboxAttemptsProgram})
      if (access(file, R_OK) != 0) _exit(kOutOfReach);
    const char* const arguments[] = {
        "driver_walls_test",
        "--gtest_filter=Granted/DriverWalls.*/All:Granted/DriverWalls.*/NoFilter", nullptr};
    fexecve(self, const_cast<char* const*>(arguments), environ);
    _exit(1);
  }
  close(self);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kOutOfReach)
    GTEST_SKIP() << "other users may not read the folder of the build";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_P(DriverWalls, Root_HasWhatADriverNeedsAndNothingElse) {
  // More libraries than are shown, all of them before the driver's own name.
  for (size_t i = 0; i <= limits::kNamedLibrariesMax; ++i)
    std::ofstream(folder_ / ("liba" + std::to_string(i) + ".so")) << "x";
  std::ofstream(folder_ / "notes.some") << "no library";
  const auto errors = Hear(Start("driver-root"));
  ASSERT_TRUE(errors.contains("end"));
  const auto error = [&](const std::string& what) {
    EXPECT_TRUE(errors.contains(what)) << what;
    return errors.contains(what) ? static_cast<int>(errors.at(what)) : -1;
  };
  for (const char* const there :
       {"read the driver", "load the driver", "read /dev/null", "read /dev/urandom",
        "write /dev/zero", "read /proc/self/maps", "read /proc/cpuinfo", "read /etc/ld.so.cache",
        "read /sys/devices/system/cpu/online", "write in /tmp", "write in /dev/shm",
        "start a thread"})
    EXPECT_EQ(error(there), 0) << there << ": " << strerror(error(there));
  for (const char* const not_there :
       {"read the secret", "read the note beside it", "read /sys/devices/virtual/net/lo",
        "read /etc/passwd", "read /root", "read /home", "read /var", "read /run", "read /bin/sh",
        "read /usr/bin/env", "read the supervisor's /proc", "read /sys/kernel"})
    EXPECT_EQ(error(not_there), ENOENT) << not_there << ": " << strerror(error(not_there));
  for (const char* const read_only : {"write in ", "write in /usr/lib", "write in /dev",
                                      "write in /etc", "write beside the driver"})
    EXPECT_TRUE(error(read_only) == EROFS || error(read_only) == EACCES)
        << read_only << ": " << strerror(error(read_only));
  if (GetParam().parts.has(SandboxPart::kSystemCalls))
    for (const char* const program : {"make a process (vfork)", "run the dynamic linker"})
      EXPECT_EQ(error(program), EPERM) << program << ": " << strerror(error(program));
  EXPECT_FALSE(std::filesystem::exists("/tmp/outboard-driver-walls"));
}

// Of a supervisor that is root.
TEST_P(DriverWalls, Process_HasAnIdAndNoRights) {
  ChildProcess child = Start("stay");
  Hear(child);
  const std::string status = test::ReadFile("/proc/" + std::to_string(child.pid()) + "/status");
  EXPECT_NE(status.find("CapEff:\t0000000000000000"), std::string::npos) << status;
  EXPECT_NE(status.find("CapBnd:\t0000000000000000"), std::string::npos) << status;
  EXPECT_NE(status.find("NoNewPrivs:\t1"), std::string::npos) << status;
  if (GetParam().parts.has(SandboxPart::kSystemCalls)) {
    EXPECT_NE(status.find("Seccomp:\t2"), std::string::npos) << status;
  }
  if (geteuid() != 0) return;
  const size_t at = status.find("Uid:\t");
  ASSERT_NE(at, std::string::npos);
  EXPECT_GE(std::stoul(status.substr(at + 5)), limits::kNobody);
}

INSTANTIATE_TEST_SUITE_P(
    Granted, DriverWalls,
    ::testing::Values(Granted{"All", SandboxParts::All()},
                      Granted{"NoFilter", Without({SandboxPart::kSystemCalls})},
                      Granted{"NoUser", Without({SandboxPart::kUser}), /*by_root_alone=*/true},
                      // Others of a user's own id, which root's children do not keep, are in reach.
                      Granted{"NoProcesses", Without({SandboxPart::kProcesses}),
                              /*by_root_alone=*/true}),
    [](const auto& info) { return std::string(info.param.name); });

// ---- what follows for whoever runs the worker ---------------------------------------------------

// In a process of its own, since it lasts.
TEST(DriverWallsMissing, WithoutThem_IsSaidAndExecutorsHaveFewer) {
  if (kIsSanitizersBuild || !GrantedParts().all()) GTEST_SKIP() << "there are no walls";
  EXPECT_EXIT(
      {
        setenv("OUTBOARD_DEVICE", "cuda", 1);
        const bool all = PartsFor(SandboxProfile::kExecutor).all();
        DoWithoutDriverWalls("the driver said so");
        const SandboxParts left = PartsFor(SandboxProfile::kExecutor);
        const bool fewer = !left.has(SandboxPart::kFiles) && !left.has(SandboxPart::kSystemCalls) &&
                           left.has(SandboxPart::kNetwork);
        const bool others = PartsFor(SandboxProfile::kCompiler).all();
        const bool told = WhatIsMissing().find("(the driver said so)") != std::string::npos;
        _exit(all && fewer && others && told ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// What three tries do in turn, the second of them without walls, whether the walls stay, and what
// the log says in any case.
struct Tries {
  const char* name;
  const char* each[3];
  bool stay;
  const char* says = "";
};

class DriverTrial : public ::testing::TestWithParam<Tries> {};

TEST_P(DriverTrial, Verdict_NeedsAReasonTwice) {
  if (kIsSanitizersBuild || !GrantedParts().all()) GTEST_SKIP() << "there are no walls";
  const test::TempFolder folder;
  const std::string executor = folder / "executor", count = folder / "count";
  std::ofstream script(executor);
  script << "#!/bin/sh\necho x >> " << count << "\ncase $(wc -l < " << count << ") in\n";
  for (int i = 0; i < 3; ++i) script << i + 1 << ") " << GetParam().each[i] << ";;\n";
  script << "esac\n";
  script.close();
  std::filesystem::permissions(executor, std::filesystem::perms::owner_all);
  EXPECT_EXIT(
      {
        setenv("OUTBOARD_DEVICE", "cuda", 1);
        ExecutorMainOptions options;
        options.device_seconds_max = 1;
        const std::atomic<bool> stopping{false};
        TryDriverBehindWalls({executor}, options, /*device_count=*/1, stopping);
        _exit(PartsFor(SandboxProfile::kExecutor).all() ? 0 : 1);
      },
      ::testing::ExitedWithCode(GetParam().stay ? 0 : 1), GetParam().says);
}

constexpr char kWorks[] = "echo 1 >&3", kFails[] = "echo no such file; exit 1",
               kIsLate[] = "sleep 1.2; exit 1";
INSTANTIATE_TEST_SUITE_P(
    Cases, DriverTrial,
    ::testing::Values(Tries{"Works", {kWorks, kFails, kFails}, true},
                      Tries{"FailsOnce", {kFails, kWorks, kWorks}, true},
                      Tries{"FailsTwice", {kFails, kWorks, kFails}, false},
                      Tries{"FailsAndIsLate", {kFails, kWorks, kIsLate}, false},
                      Tries{"IsLateTwice", {kIsLate, kWorks, kIsLate}, true, "OUTBOARD_SANDBOX=0"},
                      Tries{"FailsWithoutWalls", {kFails, kFails, kFails}, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace outboard::worker
