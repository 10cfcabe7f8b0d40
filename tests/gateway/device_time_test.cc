// That what is charged is for no more time than passed.
#include "gateway/ledger/device_time.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

constexpr MonoTime At(int64_t ms) { return MonoTime{ms * 1'000'000}; }
constexpr LeaseId Of(uint64_t session) { return {{session, 0}, 1}; }

absl::Status Check(const DeviceTime& time, LeaseId lease, int64_t to_ms, MonoTime now) {
  return time.Check({.device = {lease, 0}, .tenant = TenantId{1}, .to_ms = to_ms}, now);
}

TEST(DeviceTime, ALeaseIsChargedForNoMoreThanPassed) {
  DeviceTime time;
  const std::vector<std::string> device = {"gpu/0"};
  time.Begin(Of(1), device, At(1000));
  EXPECT_TRUE(Check(time, Of(1), 500, At(1500)).ok());
  EXPECT_TRUE(absl::IsInternal(Check(time, Of(1), 501, At(1500))));
  EXPECT_TRUE(absl::IsInternal(Check(time, Of(2), 1, At(1500)))) << "it never began";
  time.End(Of(1));
  EXPECT_TRUE(absl::IsInternal(Check(time, Of(1), 1, At(1500)))) << "its last charges came before";
}

// Its worker has joined again, and another session has the device there, before the gateway knows
// that the old connection is gone.
TEST(DeviceTime, OneThatWasReplacedIsChargedUntilThen_HoweverManyEndMeanwhile) {
  DeviceTime time;
  const std::vector<std::string> device = {"gpu/0"}, other = {"gpu/1"};
  const auto lease_and_end = [&](uint64_t session) {
    time.Begin(Of(session), other, At(0));
    time.End(Of(session));
  };
  for (uint64_t session = 100; session < 5100; ++session) lease_and_end(session);
  time.Begin(Of(1), device, At(1000));
  time.Begin(Of(2), device, At(3000));
  lease_and_end(6000);
  EXPECT_TRUE(Check(time, Of(1), 2000, At(4000)).ok()) << Check(time, Of(1), 2000, At(4000));
  EXPECT_TRUE(absl::IsInternal(Check(time, Of(1), 2001, At(4000))));
  EXPECT_TRUE(Check(time, Of(2), 1000, At(4000)).ok());
  time.End(Of(1));
  EXPECT_TRUE(Check(time, Of(2), 1000, At(4000)).ok()) << "the device is its own still";
}

}  // namespace
}  // namespace outboard::gateway::test
