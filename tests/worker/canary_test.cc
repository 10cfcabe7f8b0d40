// Memory between tenants: what one session leaves in a device's memory, no other sees. Each session
// has a process of its own, begun as an executor is, and ended by killing it with its memory full.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/paths.h"
#include "tests/worker/heard.h"
#include "worker/process/child_process.h"

namespace outboard::worker {
namespace {

using test::Hear;

ChildProcess Start(const std::string& mode) {
  auto child = ChildProcess::Start({test::kSandboxAttemptsProgram, mode, "0", "0", "none", "none"},
                                   {.profile = SandboxProfile::kExecutor});
  EXPECT_TRUE(child.ok()) << child.status();
  return child.ok() ? *std::move(child) : ChildProcess();
}

// Else the test below could not fail.
TEST(Canary, WithinASession_UnwrittenMemoryIsItsOwn) {
  EXPECT_GT(Hear(Start("look-at-its-own"))["seen"], 0);
}

TEST(Canary, AnotherSession_SeesNothing) {
  for (int round = 0; round < 2; ++round) {
    ChildProcess first = Start("fill");
    EXPECT_GT(Hear(first)["canaries"], 1'000'000);
    first.Stop();
    auto seen = Hear(Start("look"));
    ASSERT_TRUE(seen.contains("seen"));
    EXPECT_EQ(seen["seen"], 0);
  }
}

TEST(Canary, BesideASessionThatRuns_NothingIsSeen) {
  ChildProcess first = Start("fill");
  EXPECT_GT(Hear(first)["canaries"], 1'000'000);
  auto seen = Hear(Start("look"));
  ASSERT_TRUE(seen.contains("seen"));
  EXPECT_EQ(seen["seen"], 0);
}

}  // namespace
}  // namespace outboard::worker
