// A search process that says by files whether it runs. Waits end when the file is there or gone;
// only a failure takes long.
#include "worker/tuning/idle_searcher.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/support/temp_folder.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

bool Within20s(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

class IdleSearcherTest : public ::testing::Test {
 protected:
  // Adds a line to `runs`, leaves its pid and stays, or ends with `code`.
  IdleSearcherOptions Staying() {
    return Script(
        "sed -n 's/^PPid:[[:space:]]*//p' /proc/self/status > pid.new; mv pid.new pid; exec sleep "
        "600");
  }
  IdleSearcherOptions Ending(int code) { return Script("exit " + std::to_string(code)); }
  IdleSearcherOptions Script(const std::string& then) {
    return {.command = {"/bin/sh", "-c", "cd " + (folder_ / "") + " && echo run >> runs; " + then},
            .quiet = milliseconds(1)};
  }
  int Runs() {
    std::ifstream file(folder_ / "runs");
    int runs = 0;
    for (std::string line; std::getline(file, line);) ++runs;
    return runs;
  }
  int Pid() {
    std::ifstream file(folder_ / "pid");
    int pid = 0;
    file >> pid;
    return pid;
  }
  static bool Runs(int pid) { return kill(pid, 0) == 0; }

  test::TempFolder folder_;
};

TEST_F(IdleSearcherTest, SearchesWhenIdleAndEndsAtOnceWhenWorkComes) {
  IdleSearcher searcher(Staying());
  searcher.Sent("a", 1);
  searcher.Applied("a", 1);
  ASSERT_TRUE(Within20s([&] { return Pid() > 0; }));
  const int first = Pid();
  searcher.Sent("a", 0);  // no work
  EXPECT_TRUE(Runs(first));
  searcher.Sent("a", 2);
  ASSERT_TRUE(Within20s([&] { return !Runs(first); }));
  EXPECT_EQ(Runs(), 1);
  searcher.Applied("a", 2);
  ASSERT_TRUE(Within20s([&] { return Pid() != first; }));
  EXPECT_EQ(Runs(), 2);
}

TEST_F(IdleSearcherTest, AnEndedSearchIsBegunAgainAfterNewWorkOnly) {
  IdleSearcher searcher(Ending(0));
  searcher.Sent("a", 1);
  searcher.Applied("a", 1);
  ASSERT_TRUE(Within20s([&] { return Runs() == 1; }));
  searcher.Sent("a", 2);
  searcher.Ended("a");
  ASSERT_TRUE(Within20s([&] { return Runs() == 2; }));
}

TEST_F(IdleSearcherTest, OneThatFailsIsNotTriedForEver) {
  std::atomic<int> ended{0};
  IdleSearcherOptions options = Ending(1);
  options.on_end = [&](const std::string& how) {
    EXPECT_EQ(how, "exited with 1");
    ++ended;
  };
  {
    IdleSearcher searcher(options);
    for (int i = 1; i <= 5; ++i) {
      searcher.Sent("a", i);
      searcher.Applied("a", i);
      ASSERT_TRUE(Within20s([&] { return ended == std::min(i, 3); }));
    }
  }
  EXPECT_EQ(Runs(), 3);
}

TEST_F(IdleSearcherTest, EndsWithItsOwner) {
  int pid;
  {
    IdleSearcher searcher(Staying());
    searcher.Ended("nobody");
    searcher.Sent("a", 1);
    searcher.Applied("a", 1);
    ASSERT_TRUE(Within20s([&] { return Pid() > 0; }));
    pid = Pid();
  }
  EXPECT_FALSE(Runs(pid));
}

}  // namespace
}  // namespace outboard::worker
