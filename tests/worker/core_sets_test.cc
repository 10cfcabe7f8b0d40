#include "worker/node/core_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/cores.h"

namespace outboard::worker {
namespace {

TEST(CoreSets, AreDisjointAndCoverAllCores) {
  const std::vector<int> cores = {0, 1, 2, 5, 6, 7, 9, 11, 12, 13, 14};
  for (int devices = 1; devices <= static_cast<int>(cores.size()); ++devices) {
    const auto sets = DivideCores(cores, devices);
    ASSERT_EQ(sets.size(), static_cast<size_t>(devices));
    std::multiset<int> all;
    size_t least = cores.size(), most = 0;
    for (const auto& set : sets) {
      all.insert(set.begin(), set.end());
      least = std::min(least, set.size());
      most = std::max(most, set.size());
    }
    EXPECT_EQ(all, std::multiset<int>(cores.begin(), cores.end())) << devices;
    EXPECT_LE(most - least, 1u) << devices;
  }
}

TEST(CoreSets, MoreDevicesThanCores_ShareThem) {
  const auto sets = DivideCores({3, 4}, 5);
  EXPECT_EQ(sets, (std::vector<std::vector<int>>{{3}, {4}, {3}, {4}, {3}}));
}

TEST(CoreSets, OfThisProcess_AreThoseOfItsAffinity) {
  const std::vector<int> all = UsableCores();
  ASSERT_FALSE(all.empty());
  cpu_set_t one, before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(all.back(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(UsableCores(), std::vector<int>{all.back()});
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace outboard::worker
