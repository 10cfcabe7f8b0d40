// Turns between accounts by what their jobs cost. F1 to F3 are the invariants in base/fair_queue.h.
#include "base/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace outboard {
namespace {

// One thread, and a clock that only jobs move.
class FairQueueTest : public ::testing::Test {
 protected:
  // The queue does nothing until Open.
  FairQueueTest() {
    queue_.Post(99, [this] { gate_.get_future().wait(); });
    while (queue_.waiting() > 0) std::this_thread::yield();
  }
  void Post(uint64_t account, int64_t cost_us, const std::string& name) {
    queue_.Post(account, [this, cost_us, name] {
      now_us_ += cost_us;
      ran_ += name;
    });
  }
  // The names of the jobs, in the order in which they ran.
  std::string Run() {
    gate_.set_value();
    queue_.Stop();
    return ran_;
  }

  std::atomic<int64_t> now_us_{0};
  std::string ran_;  // of the only thread
  std::promise<void> gate_;
  FairQueue queue_{{.now_us = [this] { return now_us_.load(); }}};
};

TEST_F(FairQueueTest, JobsOfOneAccount_RunInOrder) {
  for (const char* name : {"a", "b", "c", "d"}) Post(1, 10, name);
  EXPECT_EQ(Run(), "abcd");
}

TEST_F(FairQueueTest, EqualCosts_Alternate) {
  for (int i = 0; i < 4; ++i) Post(1, 10, "a");
  for (int i = 0; i < 4; ++i) Post(2, 10, "b");
  EXPECT_EQ(Run(), "abababab");
}

// A queue of one line would run all of `a` first, one turn each would give them equal numbers.
TEST_F(FairQueueTest, AHundredTimesTheCost_AHundredthOfTheTurns) {
  for (int i = 0; i < 5; ++i) Post(1, 1000, "a");
  for (int i = 0; i < 50; ++i) Post(2, 10, "b");
  const std::string ran = Run();
  EXPECT_LE(std::count(ran.begin(), ran.begin() + 52, 'a'), 2) << ran;
  EXPECT_EQ(std::count(ran.begin(), ran.end(), 'a'), 5);
}

TEST_F(FairQueueTest, AFloodOfManyJobs_StarvesNobody) {
  for (int i = 0; i < 10'000; ++i) Post(1, 10, "a");
  for (uint64_t other = 2; other < 10; ++other) Post(other, 10, "b");
  const std::string ran = Run();
  EXPECT_LT(ran.rfind('b'), 20u);
}

// F2: nor does one that comes late have all the turns that it did not take.
TEST(FairQueue, AnAccountThatComesLate_CollectsNoCredit) {
  std::atomic<int64_t> now_us{0};
  std::string ran;
  FairQueue queue({.now_us = [&] { return now_us.load(); }});
  const auto post = [&](uint64_t account, int64_t cost_us, const char* name) {
    queue.Post(account, [&, cost_us, name] {
      now_us += cost_us;
      ran += name;
    });
  };
  std::promise<void> fifty_ran, both_wait;
  for (int i = 0; i < 50; ++i) post(1, 100, "a");
  queue.Post(1, [&] {
    fifty_ran.set_value();
    both_wait.get_future().wait();
  });
  fifty_ran.get_future().wait();
  for (int i = 0; i < 5; ++i) post(1, 100, "a");
  for (int i = 0; i < 5; ++i) post(2, 100, "b");
  both_wait.set_value();
  queue.Stop();
  EXPECT_LE(ran.substr(50).find("ba"), 2u) << ran.substr(50);
}

// An account that waits for the disk with all its jobs leaves a thread for the others.
TEST(FairQueue, OneAccountWithManyJobs_DoesNotHaveAllThreads) {
  FairQueue queue({.threads = 4, .at_once = 3});
  std::promise<void> gate, other;
  std::shared_future<void> open(gate.get_future());
  std::atomic<int> running{0}, most{0};
  for (int i = 0; i < 20; ++i)
    queue.Post(1, [&, open] {
      most = std::max(most.load(), ++running);
      open.wait();
      --running;
    });
  queue.Post(2, [&] { other.set_value(); });
  EXPECT_EQ(other.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  gate.set_value();
  queue.Stop();
  EXPECT_LE(most, 3);
}

// F1. An account that gives way rests for as long as its job ran, and has no second one beside it.
TEST(FairQueue, WhoGivesWay_HasHalfAProcessor) {
  constexpr std::chrono::milliseconds kCost{4};
  constexpr int kJobs = 8;
  using Time = std::chrono::steady_clock::time_point;
  std::atomic<int> running{0}, most{0};
  std::vector<std::pair<Time, Time>> ran;  // of account 1: one at a time
  {
    FairQueue queue({.threads = 4, .at_once = 3, .gives_way = [](uint64_t a) { return a == 1; }});
    std::promise<void> all;
    for (int i = 0; i < kJobs; ++i)
      queue.Post(1, [&] {
        most = std::max(most.load(), ++running);
        const Time began = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - began < kCost) std::this_thread::yield();
        ran.emplace_back(began, std::chrono::steady_clock::now());
        --running;
        if (ran.size() == kJobs) all.set_value();
      });
    // Nobody else waits for that.
    std::promise<void> other;
    queue.Post(2, [&] { other.set_value(); });
    EXPECT_EQ(other.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    EXPECT_EQ(all.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  }
  EXPECT_EQ(most, 1);
  for (size_t i = 1; i < ran.size(); ++i)
    EXPECT_GE(ran[i].first - ran[i - 1].second, kCost) << i;
}

// A queue that stops waits for no rest, and F1 holds while accounts change their minds.
TEST(FairQueue, WhoGivesWayNowAndThen_LosesNoJob) {
  std::atomic<int> ran{0}, asked{0};
  {
    FairQueue queue({.threads = 3,
                     .at_once = 2,
                     .gives_way = [&](uint64_t) { return ++asked % 3 == 0; }});
    for (uint64_t i = 0; i < 20'000; ++i) queue.Post(i % 5, [&] { ++ran; });
  }
  EXPECT_EQ(ran, 20'000);
}

// F3.
TEST(FairQueue, WhatAJobThrows_IsToldAndTheNextRuns) {
  std::atomic<uint64_t> told{0};
  std::atomic<int> ran{0};
  const auto job = [&] {
    if (ran++ == 0) throw std::out_of_range("no such key");
  };
  FairQueue queue({.caught = [&](uint64_t account) { told = account; }});
  queue.Post(7, job);
  queue.Post(7, job);
  queue.Stop();
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(told, 7u);
  ran = 0;
  queue.Post(8, job);  // on this thread
  EXPECT_EQ(told, 8u);
}

TEST(FairQueue, AccountsWithoutJobs_TakeNoMemory) {
  FairQueue queue({.threads = 2, .niceness = 5});
  std::atomic<int> ran{0};
  for (uint64_t account = 0; account < 1000; ++account) queue.Post(account, [&] { ++ran; });
  while (ran < 1000) std::this_thread::yield();
  std::promise<void> last;
  queue.Post(0, [&] { last.set_value(); });
  last.get_future().wait();
  for (int i = 0; i < 1000 && queue.accounts() > 1; ++i) std::this_thread::yield();
  EXPECT_LE(queue.accounts(), 1u);
  queue.Stop();
  queue.Post(1, [&] { ++ran; });  // on this thread
  EXPECT_EQ(ran, 1001);
}

// F1, with threads that come and go at once: nothing is lost, and nothing runs twice.
TEST(FairQueue, ManyThreadsPost_EachJobRunsOnce) {
  std::atomic<int> ran{0};
  {
    FairQueue queue({.threads = 3, .at_once = 2});
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < 5000; ++i) queue.Post(i % (t + 2), [&] { ++ran; });
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ran, 20'000);
}

// In a thread of its own: niceness does not come back without a right.
TEST(ThreadSlice, ThreadsInheritIt_AndItComesBack) {
  std::thread([] {
    if (!SetSliceOfThisThread({.slice = kLongestSlice}) ||
        SliceOfThisThread().slice != kLongestSlice)
      GTEST_SKIP() << "this kernel has no slices";
    {
      const ScopedShortSlice here;
      EXPECT_EQ(SliceOfThisThread().slice, kShortestSlice);
      std::thread([] { EXPECT_EQ(SliceOfThisThread().slice, kShortestSlice); }).join();
    }
    EXPECT_EQ(SliceOfThisThread().slice, kLongestSlice);
    SetSliceOfThisThread({.slice = kShortestSlice});
    const int niceness = SliceOfThisThread().niceness;
    YieldToOthers(3);
    EXPECT_EQ(SliceOfThisThread().slice, kLongestSlice);
    EXPECT_EQ(SliceOfThisThread().niceness, std::min(niceness + 3, 19));
  }).join();
}

}  // namespace
}  // namespace outboard
