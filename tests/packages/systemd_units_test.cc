// deploy/systemd: units that systemd accepts, and that leave little to attack.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/processes.h"

namespace outboard {
namespace {

constexpr char kAnalyze[] = "/usr/bin/systemd-analyze";
constexpr char kUnits[] = OUTBOARD_SOURCE_DIR "/deploy/systemd";

TEST(SystemdUnits, AreExposedAtMostThree) {
  if (access(kAnalyze, X_OK) != 0) GTEST_SKIP() << "no systemd-analyze here (apt install systemd)";
  int units = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kUnits)) {
    if (entry.path().extension() != ".service") continue;
    ++units;
    // The threshold is in tenths.
    const test::Ended rated = test::RunToEnd(
        {kAnalyze, "security", "--offline=true", "--threshold=30", entry.path().string()});
    EXPECT_EQ(rated.code, 0) << rated.out << rated.err;
    EXPECT_EQ(rated.err.find("ignoring"), std::string::npos) << rated.err;
    EXPECT_NE(rated.out.find("Overall exposure level"), std::string::npos) << rated.err;
    const std::string text = test::ReadFile(entry.path().string());
    for (const char* has :
         {"Type=notify", "DynamicUser=yes", "WatchdogSec=", "NoNewPrivileges=yes", "LimitCORE=0"})
      EXPECT_NE(text.find(has), std::string::npos) << entry.path() << ": " << has;
  }
  EXPECT_EQ(units, 3);
}

}  // namespace
}  // namespace outboard
