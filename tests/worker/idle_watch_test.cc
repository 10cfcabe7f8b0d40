#include <gtest/gtest.h>

#include "worker/tuning/idle_searcher.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

IdleWatch::Time At(int ms) { return IdleWatch::Time(milliseconds(ms)); }

TEST(IdleWatch, IsIdleSomeTimeAfterTheLastAnswer) {
  IdleWatch watch(milliseconds(100));
  watch.Sent("a", 1, At(1000));
  EXPECT_FALSE(watch.IdleFrom().has_value());
  watch.Sent("a", 3, At(1010));  // a frame of two
  watch.Applied("a", 2, At(1500));
  EXPECT_FALSE(watch.IdleFrom().has_value());
  watch.Applied("a", 3, At(1600));
  EXPECT_EQ(watch.IdleFrom(), At(1700));
  watch.Applied("a", 3, At(1650));  // a value that follows
  EXPECT_EQ(watch.IdleFrom(), At(1750));
  watch.Sent("a", 0, At(1700));  // an acknowledgement
  EXPECT_EQ(watch.IdleFrom(), At(1800));
  watch.Sent("a", 4, At(1800));
  EXPECT_FALSE(watch.IdleFrom().has_value());
}

TEST(IdleWatch, EverySessionCounts) {
  IdleWatch watch(milliseconds(100));
  watch.Sent("a", 1, At(0));
  watch.Sent("b", 7, At(10));
  watch.Applied("a", 1, At(20));
  EXPECT_FALSE(watch.IdleFrom().has_value());
  watch.Ended("b", At(30));  // in the middle of its work
  EXPECT_EQ(watch.IdleFrom(), At(130));
  watch.Ended("b", At(40));
  watch.Ended("a", At(50));
  EXPECT_EQ(watch.IdleFrom(), At(150));
}

// Items are sent again after a reconnection.
TEST(IdleWatch, WhatIsAppliedAlreadyIsNoWork) {
  IdleWatch watch(milliseconds(100));
  watch.Sent("a", 5, At(0));
  watch.Applied("a", 5, At(10));
  watch.Sent("a", 4, At(20));
  EXPECT_EQ(watch.IdleFrom(), At(120));
}

}  // namespace
}  // namespace outboard::worker
