// Which devices get no session any more, and when (worker/devices/devices_in_service.h).
#include "worker/devices/devices_in_service.h"

#include <gtest/gtest.h>

#include <chrono>

namespace outboard::worker {
namespace {

using std::chrono::minutes;

class DevicesInServiceTest : public ::testing::Test {
 protected:
  std::optional<std::string> Fail(uint32_t device, DeviceFailure failure, int at_minute,
                                  uint64_t account = 0) {
    return in_service_.Failed(device, failure, account, "words",
                              DevicesInService::Clock::time_point(minutes(1000 + at_minute)));
  }
  DevicesInService in_service_{2};
};

TEST_F(DevicesInServiceTest, ThreeFailuresWithinAnHour_AreEnough) {
  EXPECT_EQ(Fail(1, DeviceFailure::kLost, 0), std::nullopt);
  EXPECT_EQ(Fail(1, DeviceFailure::kLaunchTooLong, 20), std::nullopt);
  EXPECT_EQ(Fail(0, DeviceFailure::kLost, 30), std::nullopt);  // another device's
  EXPECT_FALSE(in_service_.IsOut(1));
  EXPECT_EQ(Fail(1, DeviceFailure::kNotThere, 59), "it has failed 3 times within an hour: words");
  EXPECT_TRUE(in_service_.IsOut(1));
  EXPECT_EQ(in_service_.AllOut(), std::vector<uint32_t>{1});
  EXPECT_EQ(Fail(1, DeviceFailure::kMemoryFault, 60), std::nullopt);  // it is told once
}

TEST_F(DevicesInServiceTest, ThreeFailuresInMoreThanAnHour_AreNot) {
  for (const int minute : {0, 40, 80, 120, 160})
    EXPECT_EQ(Fail(0, DeviceFailure::kLost, minute), std::nullopt) << minute;
  EXPECT_FALSE(in_service_.IsOut(0));
}

TEST_F(DevicesInServiceTest, AFaultOfTheMemory_IsEnoughAlone) {
  EXPECT_EQ(Fail(0, DeviceFailure::kMemoryFault, 0), "its memory has failed: words");
  EXPECT_TRUE(in_service_.IsOut(0));
}

TEST_F(DevicesInServiceTest, OneAccountsFailures_AreNotEnough) {
  for (const int minute : {0, 5, 10, 15, 20})
    EXPECT_EQ(Fail(0, DeviceFailure::kLaunchTooLong, minute, 7), std::nullopt) << minute;
  EXPECT_FALSE(in_service_.IsOut(0));
  EXPECT_NE(Fail(0, DeviceFailure::kLost, 25, 8), std::nullopt);  // somebody else's is the third
  EXPECT_TRUE(in_service_.IsOut(0));
}

TEST_F(DevicesInServiceTest, AnAccountsSecondFaultOfMemoryWithinAnHour_IsAFailure) {
  EXPECT_NE(Fail(0, DeviceFailure::kMemoryFault, 0, 7), std::nullopt);
  EXPECT_EQ(Fail(1, DeviceFailure::kMemoryFault, 30, 7), std::nullopt);
  EXPECT_FALSE(in_service_.IsOut(1));
  EXPECT_NE(Fail(1, DeviceFailure::kMemoryFault, 40, 8), std::nullopt);  // another account's word
}

TEST_F(DevicesInServiceTest, AProcessThatKeepsTheDevice_IsEnoughAlone) {
  EXPECT_EQ(Fail(0, DeviceFailure::kNotLetGo, 0), "a process that was killed still has it: words");
}

TEST_F(DevicesInServiceTest, ADeviceThatIsNotThere_IsNobodys) {
  EXPECT_EQ(Fail(7, DeviceFailure::kMemoryFault, 0), std::nullopt);
  EXPECT_FALSE(in_service_.IsOut(7));
}

}  // namespace
}  // namespace outboard::worker
