// Clocks compared by messages, in made-up time: what is proved holds, and what is estimated is
// right where both ways take equally long.
#include "client/trace/clock_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace outboard::trace {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1000 * kMs;

// `seconds` of a message a millisecond each way, to a clock that is ahead by offset_ns and gains
// drift_ppm, with the delays given and up to jitter_ns more.
struct Line {
  int64_t offset_ns = 0;
  int64_t drift_ppm = 0;
  uint64_t up_ns = 0, down_ns = 0, jitter_ns = 0;

  uint64_t Theirs(uint64_t ours_ns) const {
    return ours_ns + offset_ns + static_cast<int64_t>(ours_ns / 1'000'000) * drift_ppm;
  }
  void Talk(ClockBounds& bounds, uint64_t from_ns, uint64_t to_ns, uint32_t seed = 1) const {
    std::mt19937_64 random(seed);
    for (uint64_t t = from_ns; t < to_ns; t += kMs) {
      const uint64_t up = up_ns + (jitter_ns > 0 ? random() % jitter_ns : 0);
      const uint64_t down = down_ns + (jitter_ns > 0 ? random() % jitter_ns : 0);
      bounds.AtMost(t, static_cast<int64_t>(Theirs(t + up) - t));
      bounds.AtLeast(t + up + down, static_cast<int64_t>(Theirs(t + up) - (t + up + down)));
    }
  }
};

TEST(ClockBounds, FindTheOffsetThroughEqualDelays) {
  const struct {
    int64_t offset_ns;
    uint64_t delay_ns, jitter_ns;
  } cases[] = {
      {5 * static_cast<int64_t>(kSecond), 0, 0},
      {-70'000 * static_cast<int64_t>(kSecond) / 1000, 50 * kMs, 0},
      {3'600 * static_cast<int64_t>(kSecond), 50 * kMs, 30 * kMs},
      {-static_cast<int64_t>(kSecond), 100 * kMs, 5 * kMs},
  };
  for (const auto& c : cases) {
    ClockBounds bounds;
    const Line line{c.offset_ns, 0, c.delay_ns, c.delay_ns, c.jitter_ns};
    line.Talk(bounds, 100 * kSecond, 103 * kSecond);
    const ClockMap map = bounds.Settle();
    ASSERT_TRUE(map.known);
    EXPECT_FALSE(map.same_clock);
    EXPECT_NEAR(map.offset_ns, c.offset_ns, kMs) << c.offset_ns;
    EXPECT_LE(std::abs(map.offset_ns - c.offset_ns), map.error_ns_max + 1);
    EXPECT_NEAR(static_cast<double>(map.Ours(line.Theirs(101 * kSecond))), 101.0 * kSecond, kMs);
  }
}

// The error that is told covers what no estimate can know.
TEST(ClockBounds, TellHowWrongTheyMayBe) {
  ClockBounds bounds;
  const Line line{20 * static_cast<int64_t>(kSecond), 0, 80 * kMs, 20 * kMs, 0};
  line.Talk(bounds, kSecond, 2 * kSecond);
  const ClockMap map = bounds.Settle();
  EXPECT_EQ(map.offset_ns - line.offset_ns, 30 * static_cast<int64_t>(kMs));
  EXPECT_EQ(map.error_ns_max, 50 * static_cast<int64_t>(kMs));
}

TEST(ClockBounds, FollowAClockThatDrifts) {
  ClockBounds bounds;
  const Line line{static_cast<int64_t>(kSecond), 80, 100'000, 100'000, 0};
  line.Talk(bounds, 0, 100 * kSecond);
  const ClockMap map = bounds.Settle();
  for (uint64_t t = 0; t < 100 * kSecond; t += kSecond)
    EXPECT_NEAR(static_cast<double>(map.Ours(line.Theirs(t))), static_cast<double>(t), kMs) << t;
}

TEST(ClockBounds, KeepTheOrderOfTimes) {
  ClockBounds bounds;
  Line line{static_cast<int64_t>(kSecond), 0, 0, 40 * kMs, 0};
  line.Talk(bounds, 0, 10 * kSecond);
  line = {static_cast<int64_t>(kSecond), 90, 40 * kMs, 0, 0};
  line.Talk(bounds, 10 * kSecond, 30 * kSecond);
  const ClockMap map = bounds.Settle();
  uint64_t last = 0;
  for (uint64_t t = 2 * kSecond; t < 40 * kSecond; t += 7 * kMs) {
    EXPECT_GT(map.Ours(t), last);
    last = map.Ours(t);
  }
}

TEST(ClockBounds, OneMachineHasOneClock) {
  ClockBounds bounds;
  const Line line{0, 0, 300'000, 20'000, 10'000};
  line.Talk(bounds, 50 * kSecond, 52 * kSecond);
  const ClockMap map = bounds.Settle();
  EXPECT_TRUE(map.same_clock);
  EXPECT_EQ(map.Ours(51 * kSecond), 51 * kSecond);
  EXPECT_GT(map.offset_ns, 100'000);  // as it would be estimated
}

TEST(ClockBounds, ByWayOfAThirdClock) {
  ClockBounds near, far;
  Line{static_cast<int64_t>(kSecond), 0, 50 * kMs, 50 * kMs, 0}.Talk(near, 0, kSecond);
  Line{5 * static_cast<int64_t>(kSecond), 0, 100'000, 100'000, 0}.Talk(far, 0, kSecond);
  const ClockMap map = near.Then(far).Settle();
  ASSERT_TRUE(map.known);
  EXPECT_EQ(map.offset_ns, 6 * static_cast<int64_t>(kSecond));
}

TEST(ClockBounds, OneWayIsNotEnough) {
  ClockBounds bounds, other;
  EXPECT_FALSE(bounds.Settle().known);
  bounds.AtMost(kSecond, 5);
  EXPECT_FALSE(bounds.Settle().known);
  other.AtMost(kSecond, 5);
  other.AtLeast(kSecond, 4);
  EXPECT_FALSE(bounds.Then(other).Settle().known);
}

// What the other side says of its clock may be anything: times keep their order all the same, and
// are left as they are where nothing is known or the clock is our own.
TEST(ClockBounds, AnyNumbersGiveTimesInOrder) {
  std::mt19937_64 random(7);
  const auto any_offset = [&random] { return static_cast<int64_t>(random()) >> (random() % 64); };
  int known = 0, mapped = 0;
  for (int round = 0; round < 2000; ++round) {
    ClockBounds a, b;
    for (int i = 0; i < 8; ++i) {
      for (ClockBounds* bounds : {&a, &b}) {
        const uint64_t at = random() >> (3 + random() % 61);  // ours: 73 years at most
        bounds->AtMost(at, any_offset());
        bounds->AtLeast(at, any_offset());
      }
    }
    const ClockMap map = a.Then(b).Settle();
    EXPECT_GE(map.error_ns_max, 0);
    EXPECT_TRUE(map.known || !map.same_clock);
    known += map.known;
    mapped += map.known && !map.same_clock;
    std::vector<uint64_t> times = {0, UINT64_MAX};
    for (int i = 0; i < 20; ++i) times.push_back(random() >> (random() % 64));
    std::sort(times.begin(), times.end());
    uint64_t last = 0;
    for (const uint64_t theirs : times) {
      const uint64_t ours = map.Ours(theirs);
      EXPECT_GE(ours, last) << "round " << round << ", at " << theirs;
      if (!map.known || map.same_clock) EXPECT_EQ(ours, theirs) << "round " << round;
      last = ours;
    }
  }
  EXPECT_GT(known, 1000) << "the rounds prove too little";
  EXPECT_GT(mapped, 500);
}

}  // namespace
}  // namespace outboard::trace
