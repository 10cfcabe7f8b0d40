#include "worker/supervisor/core_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/cores.h"

namespace outboard::worker {
namespace {

// Made-up machines: each string is the siblings of the core of its index.
SiblingsOf Machine(std::vector<std::string> siblings) {
  return [siblings = std::move(siblings)](int core) {
    return static_cast<size_t>(core) < siblings.size() ? siblings[static_cast<size_t>(core)]
                                                       : std::string();
  };
}
// Four physical cores, whose second halves are numbered behind all first ones, as Linux does on
// most servers.
const SiblingsOf kServer =
    Machine({"0,4\n", "1,5\n", "2,6\n", "3,7\n", "0,4\n", "1,5\n", "2,6\n", "3,7\n"});
// Two, numbered in pairs, as in many virtual machines.
const SiblingsOf kPairs = Machine({"0-1\n", "0-1\n", "2-3\n", "2-3\n"});
// Nothing is known.
const SiblingsOf kSilent = Machine({});

using CoreList = std::vector<int>;
using Cores = std::vector<std::vector<int>>;

TEST(CoreSets, ListsAreReadAsTheKernelWritesThem) {
  const struct {
    const char* text;
    std::optional<std::vector<int>> cores;
  } cases[] = {
      {"0", CoreList{0}},
      {"0,4\n", CoreList{0, 4}},
      {"0-3", CoreList{0, 1, 2, 3}},
      {"1-2,8", CoreList{1, 2, 8}},
      {"8,1-2,2", CoreList{1, 2, 8}},
      {" 3 \n", CoreList{3}},
      {"", std::nullopt},
      {",", std::nullopt},
      {"1,", std::nullopt},
      {"-1", std::nullopt},
      {"3-1", std::nullopt},
      {"1-2-3", std::nullopt},
      {"a", std::nullopt},
      {"0x1", std::nullopt},
      {"1-", std::nullopt},
      {"1024", std::nullopt},
      {"0-99999999999", std::nullopt},
  };
  for (const auto& one : cases) EXPECT_EQ(ParseCoreList(one.text), one.cores) << one.text;
}

TEST(CoreSets, PhysicalCores_AreWhatTheKernelSaysOfThoseThatMayBeUsed) {
  EXPECT_EQ(PhysicalCores({0, 1, 2, 3, 4, 5, 6, 7}, kServer),
            (Cores{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(PhysicalCores({1, 4, 5, 7}, kServer), (Cores{{1, 5}, {4}, {7}}));
  EXPECT_EQ(PhysicalCores({0, 1, 2, 3}, kPairs), (Cores{{0, 1}, {2, 3}}));
  EXPECT_EQ(PhysicalCores({0, 1, 9}, kSilent), (Cores{{0}, {1}, {9}}));
  // What makes no sense is no reason not to start: each core is in one group.
  EXPECT_EQ(PhysicalCores({0, 1, 2}, Machine({"1-2", "7", "0-2"})), (Cores{{0, 1, 2}}));
  EXPECT_EQ(PhysicalCores({0, 1}, Machine({"nonsense", "1,1,1"})), (Cores{{0}, {1}}));
}

TEST(CoreSets, Devices_GetWholePhysicalCores) {
  const CoreList all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(DivideCores(all, 1, kServer), (Cores{all}));
  EXPECT_EQ(DivideCores(all, 2, kServer), (Cores{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(DivideCores(all, 3, kServer), (Cores{{0, 4}, {1, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(DivideCores(all, 4, kServer), (Cores{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(DivideCores({0, 1, 2, 3}, 2, kPairs), (Cores{{0, 1}, {2, 3}}));
  EXPECT_EQ(DivideCores({0, 1, 2, 3}, 2, kSilent), (Cores{{0, 1}, {2, 3}}));
}

TEST(CoreSets, MoreDevicesThanPhysicalCores_HaveHyperThreads) {
  EXPECT_EQ(DivideCores({0, 1, 2, 3}, 3, kPairs), (Cores{{0}, {1}, {2, 3}}));
  EXPECT_EQ(DivideCores({0, 1, 4, 5}, 4, kServer), (Cores{{0}, {4}, {1}, {5}}));
  EXPECT_EQ(DivideCores({0, 4}, 3, kServer), (Cores{{0}, {4}, {0}}));
}

TEST(CoreSets, AreDisjointAndCoverAllCores) {
  const std::vector<int> cores = {0, 1, 2, 5, 6, 7, 9, 11, 12, 13, 14};
  for (int devices = 1; devices <= static_cast<int>(cores.size()); ++devices) {
    const auto sets = DivideCores(cores, devices, kSilent);
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
  const auto sets = DivideCores({3, 4}, 5, kSilent);
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
