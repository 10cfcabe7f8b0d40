// When a snapshot is due: by the clock, by what the client would have to send again, and after a
// failure.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/device.h"
#include "wire/limits.h"
#include "worker/executor/executor_core.h"
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

// A core, and what it says.
class TakeSnapshotTest : public ::testing::Test {
 protected:
  std::vector<proto::ServerItem> Send(uint64_t epoch, const proto::ClientItem& item) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    *frame.add_items() = item;
    std::vector<proto::ServerItem> said;
    for (const proto::ServerFrame& answer : core_.On(std::move(frame)))
      said.insert(said.end(), answer.items().begin(), answer.items().end());
    return said;
  }
  // Of a session whose snapshots come once an hour, and has applied one item.
  void OpenAndPut() {
    proto::ClientItem open, put;
    open.mutable_open()->set_snapshot_ms(3'600'000);
    Send(/*epoch=*/2, open);
    put.set_seq(1);
    put.mutable_put()->set_handle(7);
    put.mutable_put()->set_dtype(static_cast<uint32_t>(DType::kU8));
    put.mutable_put()->add_dims(3);
    put.mutable_put()->set_total_bytes(3);
    put.mutable_put()->set_data("abc");
    ASSERT_EQ(Send(/*epoch=*/2, put).size(), 1u);
  }
  static proto::ClientItem TakeSnapshot() {
    proto::ClientItem item;
    item.mutable_take_snapshot();
    return item;
  }

  const std::unique_ptr<Engine> engine_ = MakeReferenceEngine(test::MakeDevice(1 << 20));
  ExecutorCore core_{engine_.get(), {}};
};

// Of a gateway that was started again, which does not know the session's epoch.
TEST_F(TakeSnapshotTest, E6ItCountsInEveryEpoch) {
  OpenAndPut();
  EXPECT_EQ(core_.TakeStore(10), nullptr);
  const std::vector<proto::ServerItem> said = Send(/*epoch=*/0, TakeSnapshot());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].done().through_seq(), 1u);
  EXPECT_EQ(said[0].done().durable_seq(), 0u);
  auto store = core_.TakeStore(11);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->seq, 1u);
  proto::Stored stored;
  stored.set_id(store->id);
  store.reset();
  std::vector<proto::ServerItem> told;
  core_.OnStored(stored, 12, [&](const proto::ServerFrame& frame) {
    told.insert(told.end(), frame.items().begin(), frame.items().end());
  });
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].done().durable_seq(), 1u);
  // Again: everything is in a snapshot, and it says so.
  EXPECT_EQ(Send(/*epoch=*/0, TakeSnapshot()).at(0).done().durable_seq(), 1u);
  EXPECT_EQ(core_.TakeStore(13), nullptr);
}

TEST_F(TakeSnapshotTest, BeforeTheFirstOpenItIsNoError) {
  EXPECT_TRUE(Send(/*epoch=*/0, TakeSnapshot()).empty());
  EXPECT_FALSE(core_.ended());
}

}  // namespace
}  // namespace outboard::worker
