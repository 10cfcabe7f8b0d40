// The sandbox against a program that runs code of its own in it (sandbox_attempts_main.cc). The
// walls stand behind each other: everything is tried with all of them, and again without the filter
// of system calls.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proto/executor.pb.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/heard.h"
#include "tests/worker/sandbox_attempts.h"
#include "worker/process/child_process.h"
#include "worker/process/passed_socket.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/sandbox/sandbox_limits.h"
#include "worker/sandbox/sandbox_plan.h"
#include "worker/sandbox/session_share.h"

namespace outboard::worker {
namespace {

using test::Hear;
using test::OutsideTargets;
using test::SandboxAttempt;

constexpr char kAbstractName[] = "outboard-sandbox-test";
constexpr uint64_t kSessionBytes = uint64_t{256} << 20;

class SandboxTest : public ::testing::TestWithParam<SandboxProfile> {
 protected:
  void SetUp() override {
    if (kIsSanitizersBuild) GTEST_SKIP() << "a sanitizer's build has no sandbox";
    if (!GrantedParts().all())
      GTEST_SKIP() << "this machine does not grant: " << MissingParts(GrantedParts());
    std::ofstream(secret()) << "secret";
    Listen();
  }
  void TearDown() override {
    for (int fd : {tcp_, local_})
      if (fd >= 0) close(fd);
  }

  std::unique_ptr<ChildProcess> child_;

  std::string secret() const { return folder_ / "ledger.db"; }

  ChildProcess Start(const std::string& mode, SandboxParts parts = SandboxParts::All()) {
    auto child = ChildProcess::Start(
        {test::kSandboxAttemptsProgram, mode, std::to_string(getpid()), std::to_string(port_),
         secret(), kAbstractName + std::to_string(getpid())},
        {.profile = GetParam(),
         .memory_bytes_max = GetParam() == SandboxProfile::kSearch ? kSessionBytes : 0,
         .parts = parts});
    EXPECT_TRUE(child.ok()) << child.status();
    return child.ok() ? *std::move(child) : ChildProcess();
  }

 private:
  void Listen() {
    tcp_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ASSERT_EQ(bind(tcp_, reinterpret_cast<sockaddr*>(&address), length), 0);
    ASSERT_EQ(listen(tcp_, 4), 0);
    ASSERT_EQ(getsockname(tcp_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    local_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = kAbstractName + std::to_string(getpid());
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    ASSERT_EQ(bind(local_, reinterpret_cast<sockaddr*>(&name), length), 0);
    ASSERT_EQ(listen(local_, 4), 0);
  }

  test::TempFolder folder_;
  int tcp_ = -1, local_ = -1, port_ = 0;
};

bool IsWorkOf(SandboxProfile profile, const SandboxAttempt& attempt) {
  switch (attempt.work) {
    case SandboxAttempt::Work::kNobodys: return false;
    case SandboxAttempt::Work::kWhoeverRunsKernels: return profile != SandboxProfile::kCompiler;
  }
  return false;
}

TEST_P(SandboxTest, EveryAttempt_IsStopped) {
  const auto stopped = Hear(Start("attempts"));
  ASSERT_TRUE(stopped.contains("end"));
  for (const SandboxAttempt& attempt : test::SandboxAttempts()) {
    ASSERT_TRUE(stopped.contains(attempt.name)) << attempt.name;
    const auto error = static_cast<int>(stopped.at(attempt.name));
    const bool work = IsWorkOf(GetParam(), attempt);
    EXPECT_EQ(error == 0, work) << attempt.name << (error == 0 ? " succeeded" : " failed");
    std::printf("  %-50s %s\n", attempt.name, work ? "its work" : strerror(error));
  }
}

TEST_P(SandboxTest, EveryAttempt_WithoutTheFilter_StopsAtTheOtherWall) {
  SandboxParts parts = SandboxParts::All();
  parts.Remove(SandboxPart::kSystemCalls);
  const auto stopped = Hear(Start("attempts-other-walls", parts));
  ASSERT_TRUE(stopped.contains("end"));
  for (const SandboxAttempt& attempt : test::SandboxAttempts()) {
    if (attempt.other_wall == nullptr) continue;
    ASSERT_TRUE(stopped.contains(attempt.name)) << attempt.name;
    const auto error = static_cast<int>(stopped.at(attempt.name));
    EXPECT_NE(error, 0) << attempt.name << " succeeded; " << attempt.other_wall
                        << " was to stop it";
    std::printf("  %-50s %s: %s\n", attempt.name, attempt.other_wall, strerror(error));
  }
}

TEST_P(SandboxTest, WhatIsOutside_StaysAsItIs) {
  ChildProcess child = Start("attempts");
  Hear(child);
  const auto user = test::ReadFile("/proc/" + std::to_string(child.pid()) + "/status");
  child.Stop();
  EXPECT_EQ(test::ReadFile(secret()), "secret");
  if (geteuid() == 0) {
    const size_t at = user.find("Uid:\t");
    ASSERT_NE(at, std::string::npos);
    EXPECT_GE(std::stoul(user.substr(at + 5)), limits::kNobody);
  }
}

TEST_P(SandboxTest, Threads_HaveALimit) {
  ChildProcess child = Start("threads");
  const int64_t count = Hear(child).at("threads");
  EXPECT_GT(count, 64);
  EXPECT_LT(count, static_cast<int64_t>(limits::kThreadsMax));
}

TEST_P(SandboxTest, Descriptors_HaveALimit) {
  ChildProcess child = Start("descriptors");
  const int64_t count = Hear(child).at("descriptors");
  EXPECT_GT(count, 4);
  EXPECT_LT(count, static_cast<int64_t>(limits::kExecutorFilesMax));
}

// Memory that cannot be written any more is held all the same.
TEST_P(SandboxTest, Memory_IsLimitedHoweverItIsMapped) {
  const bool compiles = GetParam() == SandboxProfile::kCompiler;
  ChildProcess child = Start("memory");
  Hear(child, "ready");
  if (GetParam() == SandboxProfile::kExecutor) {
    ASSERT_TRUE(LimitSessionMemory(child.pid(), kSessionBytes).ok());
  }
  ASSERT_EQ(write(child.fd(), "g", 1), 1);
  const auto heard = Hear(child);
  const uint64_t written_max =
      compiles ? limits::kCompilerAddressBytes : kSessionBytes + ExecutorOwnBytes();
  for (const char* const how : {"written", "written, then to be read only",
                                "written, then out of reach", "written, then to be executed"}) {
    ASSERT_TRUE(heard.contains(how)) << how;
    const bool can_be_written = std::string(how) == "written";
    EXPECT_LE(heard.at(how),
              static_cast<int64_t>(
                  written_max + (can_be_written || compiles ? 0 : limits::kReservedAddressBytes)))
        << how;
    std::printf("  %-35s %ld MiB\n", how, heard.at(how) >> 20);
  }
  EXPECT_GE(heard.at("written"), static_cast<int64_t>(kSessionBytes));
}

// All that it can have on the disk is one file, of a bounded size.
TEST_P(SandboxTest, ItsFile_HasALimit) {
  const test::TempFolder folder;
  const int file = open((folder / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ChildProcess child = Start("file");
  Hear(child, "ready");
  ASSERT_TRUE(LimitSessionMemory(child.pid(), kSessionBytes).ok());
  proto::ToExecutor command;
  command.mutable_store_file();
  ASSERT_TRUE(WriteMessageWithDescriptor(child.fd(), command, file).ok());
  const auto heard = Hear(child);
  ASSERT_TRUE(heard.contains("end"));
  EXPECT_GE(heard.at("bytes"), static_cast<int64_t>(kSessionBytes));
  EXPECT_LE(heard.at("bytes"),
            static_cast<int64_t>(kSessionBytes + limits::kStoredFileExtraBytes));
  EXPECT_NE(heard.at("enlarge it"), 0);
  EXPECT_NE(heard.at("enlarge it (fallocate)"), 0);
  EXPECT_EQ(heard.at("empty it") == 0, GetParam() == SandboxProfile::kExecutor);
  close(file);
}

TEST_P(SandboxTest, Environment_HasWhatProgramsReadAndNoSecret) {
  for (const char* const name : {"OUTBOARD_FLEET_SECRET", "CLOUD_KEY", "AWS_SECRET_ACCESS_KEY"})
    setenv(name, "secret", 1);
  setenv("OUTBOARD_STEP_SECONDS", "77", 1);
  setenv("NOOPT", "0", 1);
  ChildProcess child = Start("environment");
  std::set<std::string> names;
  for (const auto& [entry, value] : Hear(child)) {
    EXPECT_EQ(entry.find("secret"), std::string::npos) << entry;
    names.insert(entry.substr(0, entry.find('=')));
  }
  EXPECT_TRUE(names.contains("NOOPT"));
  EXPECT_EQ(names.contains("OUTBOARD_STEP_SECONDS"), GetParam() != SandboxProfile::kCompiler);
  EXPECT_FALSE(names.contains("PATH"));
  EXPECT_FALSE(names.contains(kSandboxPlanVariable));
}

// The first process of a PID namespace ignores its own SIGABRT where it has no handler for it.
TEST_P(SandboxTest, Abort_EndsItAndIsTold) {
  ChildProcess child = Start("abort");
  EXPECT_TRUE(child.Wait(5000).IsSignal(SIGABRT));
}

TEST_P(SandboxTest, EndOfTheThreadThatStartedIt_EndsIt) {
  int pid = 0;
  std::thread([&] {
    // The object outlives the thread, as a supervisor's would whose thread has crashed.
    auto* const child = new ChildProcess(Start("stay"));
    Hear(*child);
    pid = child->pid();
    EXPECT_TRUE(test::IsAlive(pid));
    child_.reset(child);
  }).join();
  EXPECT_TRUE(test::Eventually([&] { return !test::IsAlive(pid); }));
  child_.reset();
}

INSTANTIATE_TEST_SUITE_P(Programs, SandboxTest,
                         ::testing::Values(SandboxProfile::kCompiler, SandboxProfile::kExecutor,
                                           SandboxProfile::kSearch),
                         [](const auto& info) {
                           return std::string(info.param == SandboxProfile::kCompiler   ? "Compiler"
                                              : info.param == SandboxProfile::kExecutor ? "Executor"
                                                                                        : "Search");
                         });

TEST(SandboxPlan, ComesBackFromItsText) {
  const SandboxPlan plan{SandboxProfile::kExecutor, SandboxParts(5), 1234, /*has_driver=*/true};
  const auto back = SandboxPlan::Decode(plan.Encoded());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->profile, plan.profile);
  EXPECT_EQ(back->parts, plan.parts);
  EXPECT_EQ(back->user, plan.user);
  EXPECT_EQ(back->has_driver, plan.has_driver);
  for (const char* const text : {"", "1", "9:1:0:0", "-1:1:0:0", "a:1:0:0", "1:x:0:0", "1:1:y:0",
                                 "1:1:0", "1:1:0:", "1:1:0:2", "1:1:0:0:"})
    EXPECT_FALSE(SandboxPlan::Decode(text).has_value()) << text;
}

TEST(SandboxParts, Missing_IsNamed) {
  EXPECT_EQ(MissingParts(SandboxParts::All()), "");
  SandboxParts parts = SandboxParts::All();
  parts.Remove(SandboxPart::kNetwork);
  EXPECT_EQ(MissingParts(parts), "network namespaces");
}

}  // namespace
}  // namespace outboard::worker
