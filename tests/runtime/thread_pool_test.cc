#include "runtime/cpu/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace outboard::cpu {
namespace {

TEST(ThreadPool, CoversEachIndexOnceForAnySizeAndThreads) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (int64_t count : {0, 1, 2, 3, 7, 8, 19, 20, 21, 1000, 4097}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.ForRange(
          count,
          [](void* context, int64_t begin, int64_t end) {
            auto& hits = *static_cast<std::vector<std::atomic<int>>*>(context);
            for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)].fetch_add(1);
          },
          &hits);
      for (auto& hit : hits) ASSERT_EQ(hit.load(), 1) << threads << " threads, " << count;
    }
  }
}

// Writes of one loop are read by the next without further synchronisation, at full speed and after
// sleeps.
TEST(ThreadPool, ManyShortLoopsInOrder) {
  ThreadPool pool(4);
  std::vector<int64_t> cells(64);
  const int loops = 20000;
  for (int loop = 0; loop < loops; ++loop) {
    if (loop % 4000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool.ForRange(
        64,
        [](void* context, int64_t begin, int64_t end) {
          auto& cells = *static_cast<std::vector<int64_t>*>(context);
          for (int64_t i = begin; i < end; ++i) ++cells[static_cast<size_t>(i)];
        },
        &cells);
  }
  for (int64_t cell : cells) EXPECT_EQ(cell, loops);
}

}  // namespace
}  // namespace outboard::cpu
