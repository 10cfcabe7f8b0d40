// Several processes: results in their places, and what one candidate's death, silence or a preempt
// costs.
#include "worker/compile/compile_pool.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/support/paths.h"
#include "tests/worker/square_kernel.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class CompilePoolTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("OUTBOARD_BOX_FAULTS", "1", 1); }
  static std::vector<KernelSource> Plain(std::initializer_list<std::string> encodings) {
    std::vector<KernelSource> kernels;
    for (const std::string& encoding : encodings) kernels.push_back({encoding, std::nullopt});
    return kernels;
  }
};

TEST_F(CompilePoolTest, ResultsAreInTheirPlaces) {
  CompilePool processes({.program = test::kCompilerProgram, .count = 3});
  CompilePool one({.program = test::kCompilerProgram, .count = 1});
  std::vector<KernelSource> kernels;
  for (int i = 0; i < 12; ++i)
    kernels.push_back({i == 5 ? "no kernel" : test::SquareKernel(100 + i), std::nullopt});
  kernels.push_back({test::SquareKernel(64), "VECTOR:0:4"});
  kernels.push_back({test::SquareKernel(64), "VECTOR:0:3"});
  const auto results = processes.Compile(kernels), alone = one.Compile(kernels);
  ASSERT_EQ(results.size(), kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    ASSERT_EQ(results[i].status().code(), alone[i].status().code()) << i;
    ASSERT_EQ(results[i].ok(), i != 5 && i != 13) << i << results[i].status();
    if (results[i].ok()) {
      ASSERT_EQ(results[i]->object, alone[i]->object) << i;
    }
  }
  EXPECT_TRUE(processes.Compile({}).empty());
}

TEST_F(CompilePoolTest, ACandidateThatCrashesOrHangsCostsItselfOnly) {
  CompilePool processes(
      {.program = test::kCompilerProgram, .count = 2, .deadline = milliseconds(1500)});
  const auto kernels = Plain({test::SquareKernel(8), "!hang", test::SquareKernel(9), "!abort",
                              test::SquareKernel(10), test::SquareKernel(11)});
  for (int round = 0; round < 2; ++round) {
    const auto results = processes.Compile(kernels);
    for (const size_t i : {0, 2, 4, 5}) EXPECT_TRUE(results[i].ok()) << i << results[i].status();
    for (const size_t i : {1, 3})
      EXPECT_EQ(results[i].status().code(), absl::StatusCode::kResourceExhausted) << i;
    EXPECT_NE(std::string(results[1].status().message()).find("1500 ms"), std::string::npos);
    EXPECT_NE(std::string(results[3].status().message()).find("signal 6"), std::string::npos);
  }
}

// The first candidate leaves its process too little memory for the second.
TEST_F(CompilePoolTest, WhatEndsAProcessThatWasInUse_IsTriedInAnother) {
  if (kIsSanitizersBuild) GTEST_SKIP() << "its compile process has no limit";
  CompilePool processes({.program = test::kCompilerProgram, .count = 1});
  setenv("OUTBOARD_BOX_FAULTS", "room 1024", 1);
  EXPECT_TRUE(processes.Compile(Plain({test::SquareKernel(8)}))[0].ok());
  setenv("OUTBOARD_BOX_FAULTS", "1", 1);
  const auto results = processes.Compile(Plain({test::SumOfLoads(400), "!abort"}));
  EXPECT_TRUE(results[0].ok()) << results[0].status();
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kResourceExhausted);
}

// Without the stop this would wait for a minute.
TEST_F(CompilePoolTest, AKnockEndsIt) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  CompilePool processes({.program = test::kCompilerProgram,
                         .count = 1,
                         .deadline = milliseconds(60'000),
                         .stop_fd = pair[0]});
  ASSERT_TRUE(processes.Compile(Plain({test::SquareKernel(8)}))[0].ok());
  ASSERT_EQ(write(pair[1], "!", 1), 1);
  const auto results = processes.Compile(Plain({"!hang", test::SquareKernel(9)}));
  for (const auto& result : results)
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  char preempt;
  ASSERT_EQ(read(pair[0], &preempt, 1), 1);
  EXPECT_TRUE(processes.Compile(Plain({test::SquareKernel(9)}))[0].ok());
  close(pair[0]);
  close(pair[1]);
}

TEST_F(CompilePoolTest, NoProgram) {
  CompilePool processes({.program = "/nowhere/outboard-compiler", .count = 2});
  for (const auto& result : processes.Compile(Plain({"a", "b", "c"})))
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::worker
