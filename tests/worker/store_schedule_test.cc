// When a snapshot is due: by the clock, by what the client would have to send again, and after a
// failure.
#include <gtest/gtest.h>

#include "wire/limits.h"
#include "worker/session/snapshot_schedule.h"

namespace outboard::worker {
namespace {

class StoreScheduleTest : public ::testing::Test {
 protected:
  StoreScheduleTest() {
    schedule_.SetInterval(10'000);
    EXPECT_FALSE(schedule_.Due(0)) << "nothing is new";
  }
  void Apply(uint64_t seq, size_t put_bytes = 0) {
    proto::ClientItem item;
    item.set_seq(seq);
    if (put_bytes > 0) item.mutable_put()->set_data(std::string(put_bytes, 'x'));
    schedule_.Applied(item);
  }
  SnapshotSchedule schedule_;
};

TEST_F(StoreScheduleTest, ByTheClockIfSomethingIsNew) {
  EXPECT_EQ(schedule_.wake_ms(), std::nullopt);
  Apply(1);
  EXPECT_FALSE(schedule_.Due(9'999));
  EXPECT_EQ(schedule_.wake_ms(), 10'000);
  EXPECT_TRUE(schedule_.Due(10'000));
  schedule_.Begun(10'000);
  Apply(2);
  EXPECT_FALSE(schedule_.Due(30'000)) << "one at a time";
  EXPECT_EQ(schedule_.durable_seq(), 0u);
  schedule_.Stored(true, 12'000);
  EXPECT_EQ(schedule_.durable_seq(), 1u) << "what it holds, not what came since";
  EXPECT_FALSE(schedule_.Due(19'999));
  EXPECT_TRUE(schedule_.Due(20'000));
}

TEST_F(StoreScheduleTest, BeforeTheClientsRingIsFull) {
  Apply(wire::kNotDurableItemsMax - 1);
  EXPECT_FALSE(schedule_.Due(1));
  Apply(wire::kNotDurableItemsMax);
  EXPECT_TRUE(schedule_.Due(1));
}

TEST_F(StoreScheduleTest, BeforeTheClientKeepsTooManyBytes) {
  Apply(1, wire::kNotDurableBytesMax - 1);
  EXPECT_FALSE(schedule_.Due(1));
  Apply(2, 1);
  EXPECT_TRUE(schedule_.Due(1));
  schedule_.Begun(1);
  schedule_.Stored(true, 2);
  Apply(3, 1);
  EXPECT_FALSE(schedule_.Due(3)) << "they count from the snapshot";
}

TEST_F(StoreScheduleTest, AFailureIsTriedAgainAndNotAtOnce) {
  Apply(1);
  schedule_.Begun(10'000);
  schedule_.Stored(false, 11'000);
  EXPECT_FALSE(schedule_.Due(11'000));
  EXPECT_TRUE(schedule_.Due(20'000));
  Apply(wire::kNotDurableItemsMax);
  EXPECT_FALSE(schedule_.Due(11'500)) << "the client is about to wait; still, not in a loop";
  EXPECT_TRUE(schedule_.Due(11'000 + SnapshotSchedule::kRetryMs));
}

TEST_F(StoreScheduleTest, ARequestIsDueAtOnceIfSomethingIsNew) {
  schedule_.RequestNow();
  EXPECT_FALSE(schedule_.Due(1));
  Apply(1);
  EXPECT_FALSE(schedule_.Due(1)) << "it came after the request";
  schedule_.RequestNow();
  EXPECT_EQ(schedule_.wake_ms(), 0);
  EXPECT_TRUE(schedule_.Due(1));
  schedule_.Begun(1);
  EXPECT_FALSE(schedule_.Due(2)) << "one at a time";
  schedule_.Stored(true, 2);
  EXPECT_FALSE(schedule_.Due(3)) << "once";
  EXPECT_EQ(schedule_.wake_ms(), std::nullopt);
}

TEST_F(StoreScheduleTest, ARequestIsNotAnsweredByTheSnapshotBegunBeforeIt) {
  Apply(1);
  schedule_.Begun(10'000);
  Apply(2);
  schedule_.RequestNow();
  schedule_.Stored(true, 10'500);
  EXPECT_TRUE(schedule_.Due(10'500));
  schedule_.Begun(10'500);
  schedule_.Stored(true, 11'000);
  EXPECT_EQ(schedule_.durable_seq(), 2u);
  EXPECT_FALSE(schedule_.Due(11'001));
}

TEST_F(StoreScheduleTest, ARequestThatFailedStandsAndIsNotTriedInALoop) {
  Apply(1);
  schedule_.RequestNow();
  schedule_.Begun(1);
  schedule_.Stored(false, 100);
  EXPECT_FALSE(schedule_.Due(101));
  EXPECT_EQ(schedule_.wake_ms(), 100 + SnapshotSchedule::kRetryMs);
  EXPECT_TRUE(schedule_.Due(100 + SnapshotSchedule::kRetryMs));
}

TEST_F(StoreScheduleTest, WithoutAnIntervalNever) {
  schedule_.SetInterval(0);
  Apply(10 * wire::kNotDurableItemsMax);
  schedule_.RequestNow();
  EXPECT_FALSE(schedule_.Due(1'000'000));
  EXPECT_EQ(schedule_.wake_ms(), std::nullopt);
}

}  // namespace
}  // namespace outboard::worker
