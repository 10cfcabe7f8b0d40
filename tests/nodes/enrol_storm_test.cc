// Machines that are switched on together (tests/nodes/enrol_storm.h).
#include "tests/nodes/enrol_storm.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

namespace outboard::test {
namespace {

// In memory: what takes time is the disk, and nothing here is about it.
class EnrolStormTest : public ::testing::Test {
 protected:
  EnrolStormTest() {
    if (std::filesystem::is_directory("/dev/shm")) setenv("TEST_TMPDIR", "/dev/shm", 0);
  }
};

// More than an address may ask for at once (512): some hear asks_too_often, and ask again.
TEST_F(EnrolStormTest, MachinesBehindOneAddress_AllServe_NoneTwice) {
  const TempFolder folder;
  const auto result = RunEnrolStorm({.folder = folder.path(), .machines = 600, .impostors = 20});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->serving, 600);
  EXPECT_EQ(result->twice, 0);
  EXPECT_GT(result->too_often, 0);
}

TEST_F(EnrolStormTest, MachinesOfTheirOwnAddresses_AreNotHeldUp) {
  const TempFolder folder;
  const auto result = RunEnrolStorm(
      {.folder = folder.path(), .machines = 200, .impostors = 20, .behind_one_address = false});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->serving, 200);
  EXPECT_EQ(result->twice, 0);
  EXPECT_EQ(result->too_often, 0);
}

}  // namespace
}  // namespace outboard::test
