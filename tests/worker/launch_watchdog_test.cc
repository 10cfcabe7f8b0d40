// A launch that outlives its bound is noticed, and no other (worker/executor/launch_watchdog.h).
#include "worker/executor/launch_watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

TEST(LaunchWatchdog, AWaitThatIsTooLong_IsToldWithWhatWasWaitedFor) {
  std::promise<std::string> told;
  LaunchWatchdog watchdog(milliseconds(50), [&](const std::string& line) { told.set_value(line); });
  const WatchedWait wait(&watchdog, "kernel sum_r_4", milliseconds(100));
  const std::string line = told.get_future().get();
  EXPECT_NE(line.find("kernel sum_r_4 was not done after 0.1 s"), std::string::npos) << line;
  EXPECT_NE(line.find("OUTBOARD_LAUNCH_SECONDS"), std::string::npos) << line;
}

TEST(LaunchWatchdog, ABoundOfAnotherVariable_IsNamed) {
  std::promise<std::string> told;
  LaunchWatchdog watchdog(
      milliseconds(10), [&](const std::string& line) { told.set_value(line); },
      "OUTBOARD_DEVICE_SECONDS");
  const WatchedWait wait(&watchdog, "the driver", milliseconds(10));
  const std::string line = told.get_future().get();
  EXPECT_NE(line.find("(OUTBOARD_DEVICE_SECONDS)"), std::string::npos) << line;
}

TEST(LaunchWatchdog, AShorterBoundOfItsOwn_IsSaidToBeOne) {
  std::promise<std::string> told;
  LaunchWatchdog watchdog(milliseconds(4'000),
                          [&](const std::string& line) { told.set_value(line); });
  std::future<std::string> late = told.get_future();
  const WatchedWait wait(&watchdog, "a candidate", milliseconds(20));
  EXPECT_TRUE(late.get().find("its own bound, below OUTBOARD_LAUNCH_SECONDS") != std::string::npos);
}

TEST(LaunchWatchdog, WaitsThatEndInTime_AreNot) {
  std::atomic<int> told{0};
  {
    LaunchWatchdog watchdog(milliseconds(10), [&](const std::string&) { ++told; });
    for (int i = 0; i < 20; ++i) {
      const WatchedWait wait(&watchdog, "kernel k", std::chrono::hours(1));
      std::this_thread::sleep_for(milliseconds(3));
    }
    std::this_thread::sleep_for(milliseconds(50));  // between two waits nothing is late
  }
  EXPECT_EQ(told, 0);
}

TEST(LaunchWatchdog, OfADeviceThatIsLost_TheFirstKernelIsKept) {
  LaunchWatchdog watchdog(std::chrono::hours(1), [](const std::string&) {});
  EXPECT_EQ(watchdog.lost_in(), "");
  watchdog.LostIn("kernel k");
  watchdog.LostIn("kernel of another item");
  EXPECT_EQ(watchdog.lost_in(), "kernel k");
}

TEST(LaunchWatchdog, AWaitWithoutAWatch_CostsNothing) {
  const WatchedWait wait(nullptr, "kernel k", milliseconds(1));
}

}  // namespace
}  // namespace outboard::worker
