// What the client of several ranks hears (gateway/groups/rank_answers.h).
#include "gateway/groups/rank_answers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace outboard::gateway {
namespace {

proto::ServerFrame Opened(uint64_t applied_seq) {
  proto::ServerFrame frame;
  frame.add_items()->mutable_opened()->set_applied_seq(applied_seq);
  return frame;
}
proto::ServerFrame Done(uint64_t through_seq, uint64_t device_us = 0) {
  proto::ServerFrame frame;
  frame.add_items()->mutable_done()->set_through_seq(through_seq);
  frame.mutable_items(0)->mutable_done()->set_device_time_us(device_us);
  return frame;
}
proto::ServerFrame Failed(uint64_t seq, const std::string& message, bool poisons = true) {
  proto::ServerFrame frame;
  frame.add_items()->mutable_failed()->set_seq(seq);
  frame.mutable_items(0)->mutable_failed()->set_message(message);
  if (poisons) frame.mutable_items(0)->mutable_failed()->add_handles(1);
  return frame;
}
proto::ServerFrame Value(uint64_t seq, uint64_t through_seq) {
  proto::ServerFrame frame = Done(through_seq);
  frame.mutable_items(0)->mutable_done()->add_values()->set_seq(seq);
  return frame;
}

constexpr uint64_t kSent = 100;

class RankAnswersTest : public ::testing::Test {
 protected:
  void OpenAll(uint64_t applied_seq = 0) {
    answers_.Restart();
    for (uint32_t rank = 0; rank < 3; ++rank) Merge(rank, Opened(applied_seq));
  }
  proto::ServerFrame Merge(uint32_t rank, proto::ServerFrame frame) {
    const absl::Status status = answers_.Merge(rank, kSent, frame);
    EXPECT_TRUE(status.ok()) << status;
    return frame;
  }
  RankAnswers answers_{3};
};

TEST_F(RankAnswersTest, Opened_IsSaidOnceWithTheLeastAppliedItem) {
  answers_.Restart();
  EXPECT_EQ(Merge(1, Opened(7)).items_size(), 0);
  EXPECT_EQ(Merge(0, Opened(9)).items_size(), 0);
  EXPECT_FALSE(answers_.all_opened());
  const proto::ServerFrame last = Merge(2, Opened(8));
  ASSERT_EQ(last.items_size(), 1);
  EXPECT_EQ(last.items(0).opened().applied_seq(), 7u);
  EXPECT_EQ(last.items(0).opened().devices(), 3u);
}

// Rank 0 sends again what its client has not acknowledged; a value before Opened would be lost.
TEST_F(RankAnswersTest, Value_BeforeAllHaveOpened_ComesBehindOpened) {
  answers_.Restart();
  Merge(0, Opened(5));
  EXPECT_EQ(Merge(0, Value(4, 5)).items_size(), 0);
  Merge(1, Opened(5));
  const proto::ServerFrame last = Merge(2, Opened(5));
  ASSERT_EQ(last.items_size(), 2);
  EXPECT_TRUE(last.items(0).has_opened());
  EXPECT_EQ(last.items(1).done().values(0).seq(), 4u);
}

TEST_F(RankAnswersTest, BeforeARankHasOpened_ItSpeaksToTheClientBefore) {
  answers_.Restart();
  EXPECT_EQ(Merge(0, Value(1, 1)).items_size(), 0);
  Merge(1, Opened(1)), Merge(2, Opened(1));
  const proto::ServerFrame last = Merge(0, Opened(1));
  ASSERT_EQ(last.items_size(), 1);
  EXPECT_TRUE(last.items(0).has_opened());
}

TEST_F(RankAnswersTest, Done_IsTheLeastOfAll) {
  OpenAll();
  EXPECT_EQ(Merge(0, Done(3)).items_size(), 0);
  EXPECT_EQ(Merge(1, Done(2)).items_size(), 0);
  const proto::ServerFrame two = Merge(2, Done(4));
  ASSERT_EQ(two.items_size(), 1);
  EXPECT_EQ(two.items(0).done().through_seq(), 2u);
  EXPECT_EQ(Merge(1, Done(3)).items(0).done().through_seq(), 3u);
  EXPECT_EQ(Merge(1, Done(3)).items_size(), 0) << "no news";
}

TEST_F(RankAnswersTest, Done_CountsTheWorkOfAll) {
  OpenAll();
  Merge(0, Done(1, 10));
  Merge(1, Done(1, 20));
  EXPECT_EQ(Merge(2, Done(1, 5)).items(0).done().device_time_us(), 35u);
  Merge(0, Done(2, 11));
  Merge(1, Done(2, 21));
  EXPECT_EQ(Merge(2, Done(2, 6)).items(0).done().device_time_us(), 38u);
}

TEST_F(RankAnswersTest, Value_OfRankZeroPassesAtOnceAndNoOther) {
  OpenAll();
  const proto::ServerFrame value = Merge(0, Value(1, 0));
  ASSERT_EQ(value.items_size(), 1);
  EXPECT_EQ(value.items(0).done().values_size(), 1);
  EXPECT_EQ(value.items(0).done().through_seq(), 0u);
  EXPECT_EQ(Merge(1, Value(1, 0)).items_size(), 0);
}

TEST_F(RankAnswersTest, Failed_OfOneItemIsSaidOnce) {
  OpenAll();
  EXPECT_EQ(Merge(1, Failed(1, "first")).items(0).failed().message(), "first");
  EXPECT_EQ(Merge(0, Failed(1, "second")).items_size(), 0);
  EXPECT_EQ(Merge(2, Failed(1, "third")).items_size(), 0);
  for (uint32_t rank = 0; rank < 3; ++rank) Merge(rank, Done(1));
}

TEST_F(RankAnswersTest, Failed_OnSomeRanksOnly_EndsTheSession) {
  OpenAll();
  Merge(1, Failed(1, "no memory"));
  Merge(1, Done(1));
  Merge(2, Done(1));
  proto::ServerFrame last = Done(1);
  const absl::Status status = answers_.Merge(0, kSent, last);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  for (const char* part : {"item 1", "rank 1 of 3", "no memory"})
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
}

// What was not acknowledged is answered again in the next epoch, by all ranks or by some.
TEST_F(RankAnswersTest, Failed_OfAnEarlierEpoch_IsSaidOnceMore) {
  OpenAll(/*applied_seq=*/5);
  EXPECT_EQ(Merge(0, Failed(4, "then")).items_size(), 1);
  EXPECT_EQ(Merge(1, Failed(4, "then")).items_size(), 0);
  Merge(0, Done(6));
}

TEST_F(RankAnswersTest, Failed_OnARankThatWasAhead_IsComparedWithTheOthers) {
  answers_.Restart();
  Merge(0, Opened(5));
  Merge(1, Opened(3));
  Merge(2, Opened(3));
  EXPECT_EQ(Merge(1, Failed(4, "as there")).items_size(), 1) << "rank 0's was acknowledged";
  Merge(2, Failed(4, "as there"));
  Merge(1, Done(4));
  Merge(2, Done(4));
  Merge(0, Failed(5, "no memory"));
  Merge(1, Done(5));
  proto::ServerFrame last = Done(5);
  EXPECT_EQ(answers_.Merge(2, kSent, last).code(), absl::StatusCode::kInternal);
}

// A forwarder may not know what it has forwarded.
TEST_F(RankAnswersTest, Failed_ThatComesTwice_IsNoDisagreement) {
  OpenAll();
  for (uint32_t rank = 0; rank < 3; ++rank) Merge(rank, Failed(1, "same"));
  for (uint32_t rank = 0; rank < 3; ++rank) Merge(rank, Done(1));
  EXPECT_EQ(Merge(2, Failed(1, "same")).items_size(), 0);
  Merge(0, Done(2));
}

// A checkpoint that rank 0 could not store changes nothing that the ranks hold.
TEST_F(RankAnswersTest, Failed_OfASave_IsRankZerosAlone) {
  OpenAll();
  EXPECT_EQ(Merge(0, Failed(1, "disk full", /*poisons=*/false)).items_size(), 1);
  for (uint32_t rank = 0; rank < 3; ++rank) Merge(rank, Done(1));
}

TEST_F(RankAnswersTest, Failed_OfTheSession_IsSaidOnce) {
  answers_.Restart();
  EXPECT_EQ(Merge(2, Failed(0, "bad", false)).items_size(), 1) << "also before all have opened";
  EXPECT_EQ(Merge(0, Failed(0, "bad", false)).items_size(), 0);
}

TEST_F(RankAnswersTest, Done_OfWhatWasNotSent_IsALieAndCutOff) {
  OpenAll();
  for (uint32_t rank = 0; rank < 2; ++rank) Merge(rank, Done(kSent));
  EXPECT_FALSE(answers_.TakeLie());
  const proto::ServerFrame last = Merge(2, Done(kSent + 1));
  EXPECT_EQ(last.items(0).done().through_seq(), kSent);
  EXPECT_TRUE(answers_.TakeLie());
  EXPECT_FALSE(answers_.TakeLie());
}

// A rank that was ahead when the epoch began says so again, and nobody sent it that in this epoch.
TEST_F(RankAnswersTest, Done_OfWhatARankHadAppliedBefore_IsNoLie) {
  answers_.Restart();
  Merge(0, Opened(kSent + 5));
  Merge(1, Opened(kSent));
  Merge(2, Opened(kSent));
  Merge(0, Done(kSent + 5));
  EXPECT_FALSE(answers_.TakeLie());
}

TEST_F(RankAnswersTest, KernelUses_AreNotPassed) {
  OpenAll();
  proto::ServerFrame frame = Value(1, 0);
  frame.mutable_items(0)->mutable_done()->add_kernel_uses();
  frame.mutable_items(0)->mutable_done()->set_durable_seq(1);
  const proto::ServerFrame merged = Merge(0, frame);
  EXPECT_EQ(merged.items(0).done().kernel_uses_size(), 0);
  EXPECT_EQ(merged.items(0).done().durable_seq(), 0u);
}

}  // namespace
}  // namespace outboard::gateway
