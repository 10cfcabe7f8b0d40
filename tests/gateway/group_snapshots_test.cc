// When the ranks of a session are told to take a snapshot, and what is one
// (gateway/groups/group_snapshots.h).
#include "gateway/groups/group_snapshots.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/limits.h"

namespace outboard::gateway {
namespace {

constexpr uint32_t kInterval = 2000;

wire::Hash Named(char letter) { return wire::NameBlob(std::string(1, letter)).root; }

struct Asks : SnapshotAsks {
  Asks() : SnapshotAsks(2) { Begin(kInterval, 0); }
  uint64_t SeqAt(int64_t now_ms, uint64_t from_seq = 0) {
    const auto ask = Due(now_ms, from_seq);
    return ask.has_value() ? ask->seq : 0;
  }
};

TEST(SnapshotAsks, OneIsDue_AfterAnIntervalWithWork) {
  Asks asks;
  EXPECT_EQ(asks.SeqAt(kInterval), 0u) << "nothing was sent";
  asks.Sent(7, 0);
  EXPECT_EQ(asks.SeqAt(kInterval - 1), 0u);
  EXPECT_EQ(asks.SeqAt(kInterval), 7u);
}

TEST(SnapshotAsks, TheNext_WaitsForAllRanks) {
  Asks asks;
  asks.Sent(7, 0);
  ASSERT_EQ(asks.SeqAt(kInterval), 7u);
  asks.Sent(9, 0);
  asks.PartKept(0, 7);
  EXPECT_EQ(asks.SeqAt(10 * kInterval), 0u) << "rank 1 may be storing its part";
  asks.PartKept(1, 5);
  asks.Missed(1, 0);
  EXPECT_EQ(asks.SeqAt(10 * kInterval), 0u) << "of another one";
  asks.Missed(1, 1);
  EXPECT_EQ(asks.SeqAt(10 * kInterval), 9u);
}

TEST(SnapshotAsks, WhatWasAskedBefore_IsForgottenByAnEpoch) {
  Asks asks;
  asks.Sent(7, 0);
  ASSERT_EQ(asks.SeqAt(kInterval), 7u);
  asks.Begin(kInterval, kInterval);
  asks.Sent(3, 0);
  EXPECT_EQ(asks.SeqAt(2 * kInterval, 6), 0u) << "a rank has applied item 6";
  asks.Sent(6, 0);
  EXPECT_EQ(asks.SeqAt(2 * kInterval, 6), 6u);
}

TEST(SnapshotAsks, TheClientsRoom_IsMadeAheadOfTime) {
  Asks asks;
  asks.Sent(1, wire::kNotDurableBytesMax);
  EXPECT_EQ(asks.SeqAt(1), 1u);
  asks.PartKept(0, 1), asks.PartKept(1, 1);
  asks.Durable(1);
  asks.Sent(2, 1);
  EXPECT_EQ(asks.SeqAt(2), 0u) << "there is room again";
  asks.Sent(1 + wire::kNotDurableItemsMax, 0);
  EXPECT_NE(asks.SeqAt(SnapshotAsks::kRetryMs + 1), 0u);
}

TEST(SnapshotAsks, ARequest_StandsUntilItIsMet) {
  Asks asks;
  asks.Sent(4, 0);
  asks.RequestNow();
  ASSERT_EQ(asks.SeqAt(1), 4u);
  asks.Missed(0, 1), asks.Missed(1, 1);
  EXPECT_EQ(asks.SeqAt(2), 0u) << "not at once";
  ASSERT_EQ(asks.SeqAt(1 + SnapshotAsks::kRetryMs), 4u);
  asks.PartKept(0, 4), asks.PartKept(1, 4);
  asks.Durable(4);
  EXPECT_EQ(asks.SeqAt(10 * kInterval), 0u) << "it has all";
}

TEST(SnapshotAsks, WithoutAnInterval_ThereIsNone) {
  SnapshotAsks asks(2);
  asks.Begin(0, 0);
  asks.Sent(7, wire::kNotDurableBytesMax);
  asks.RequestNow();
  EXPECT_FALSE(asks.Due(1'000'000, 0).has_value());
}

TEST(SnapshotParts, ASnapshot_HasThePartsOfAllAtOneItem) {
  SnapshotParts parts(2);
  EXPECT_FALSE(parts.Add(0, 7, Named('a')));
  EXPECT_FALSE(parts.Add(1, 8, Named('b'))) << "another item";
  EXPECT_FALSE(parts.Add(0, 7, Named('c'))) << "the same rank";
  EXPECT_FALSE(parts.Add(2, 7, Named('d'))) << "there is no such rank";
  EXPECT_TRUE(parts.Add(1, 7, Named('e')));
  EXPECT_EQ(parts.whole(), (std::vector<wire::Hash>{Named('c'), Named('e')}));
  EXPECT_FALSE(parts.Add(1, 6, Named('f'))) << "older than what is kept";
  EXPECT_TRUE(parts.Add(0, 8, Named('g')));
}

TEST(SnapshotParts, ARoot_NamesThePartOfEachRank) {
  const std::string root = RootOfParts({Named('a'), Named('b')});
  EXPECT_EQ(PartOfRoot(root, 1, 2), wire::AsBytes(Named('b')));
  EXPECT_EQ(PartOfRoot("one", 0, 1), "one");
  EXPECT_EQ(PartOfRoot("", 1, 2), "");
}

}  // namespace
}  // namespace outboard::gateway
