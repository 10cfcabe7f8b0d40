// What PyTorch has printed counts, whatever stands between, and the reason for what is missing is
// the right one. Nothing that was started for it is left.
#include "tests/bench/torch_times.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/bench/bounded_run.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {
namespace {

// Of a stand-in for torch_gpu.py.
TorchTimes TimesOf(const std::string& script, int seconds_max = 30) {
  const test::TempFolder folder;
  std::ofstream(folder / "torch_gpu.py") << script;
  setenv("OUTBOARD_TORCH_PYTHON", "NAME=value python3", 1);
  setenv("OUTBOARD_BENCH_SOURCES", folder.path().c_str(), 1);
  return TorchTimesOf("steps", seconds_max);
}

TEST(TorchTimes, LinesBetweenTheTimes_AreLeftOut) {
  const TorchTimes times =
      TimesOf("print('a 0.5\\nWarning: of 3 words\\n\\nalso this\\nb nan\\nc 2e-3')");
  EXPECT_EQ(times.seconds, (std::map<std::string, double>{{"a", 0.5}, {"c", 2e-3}}));
  EXPECT_EQ(times.WhyNot("b"), "the peer lacks b");
}

TEST(TorchTimes, WhyThereIsNone) {
  EXPECT_EQ(TimesOf("import sys; sys.exit(3)").WhyNot("a"),
            "no PyTorch that uses the GPU to compare with");
  EXPECT_EQ(TimesOf("import sys; print('a 1'); sys.exit(1)").WhyNot("b"),
            "PyTorch ended with status 1 before b");
  const TorchTimes slow = TimesOf("import time; print('a 1', flush=True); time.sleep(60)", 1);
  EXPECT_EQ(slow.seconds, (std::map<std::string, double>{{"a", 1}}));
  EXPECT_EQ(slow.WhyNot("b"), "PyTorch's 1 s were over before b");
}

// Dead, or dead and not yet waited for by whoever has inherited it.
bool HasEnded(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return !(file >> number >> name >> state) || state == "Z";
}

TEST(BoundedRun, WhatItHasStarted_EndsWithIt) {
  const BoundedRun run = RunBounded("bash -c 'sleep 60 & echo $!; wait'", 1);
  EXPECT_TRUE(run.timed_out);
  const pid_t child = std::stoi(run.said);
  for (int i = 0; i < 100 && !HasEnded(child); ++i) usleep(50'000);
  EXPECT_TRUE(HasEnded(child)) << child;
}

// A session of its own is not in the group; it holds the pipe.
TEST(BoundedRun, WhatHasLeftTheGroup_IsNotWaitedFor) {
  const BoundedRun run = RunBounded("bash -c 'setsid sleep 20 & echo $!'", 15);
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.status, 0);
  kill(std::stoi(run.said), SIGKILL);
}

TEST(BoundedRun, ThisProcessEnds_SoDoesTheCommand) {
  const test::TempFolder folder;
  const std::string file = folder / "pid";
  const pid_t other = fork();
  if (other == 0) {
    RunBounded("bash -c 'echo $$ > " + file + "; sleep 60'", 60);
    _exit(0);
  }
  int command = 0;
  for (int i = 0; i < 200 && !(std::ifstream(file) >> command); ++i) usleep(50'000);
  ASSERT_GT(command, 0);
  kill(other, SIGKILL);
  for (int i = 0; i < 100 && !HasEnded(command); ++i) usleep(50'000);
  EXPECT_TRUE(HasEnded(command)) << command;
}

}  // namespace
}  // namespace outboard::bench
