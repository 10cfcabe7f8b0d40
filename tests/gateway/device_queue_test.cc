// The policy alone: who goes next, and where.
#include "gateway/queue/device_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gateway/queue/device_pools.h"
#include "gateway/queue/fair_shares.h"
#include "tests/gateway/device_shop.h"

namespace outboard::gateway {
namespace {

// ---- fair shares --------------------------------------------------------------------------------

TEST(FairShares, HalfIsForgottenAfterAnHour) {
  FairShares shares;
  shares.Add(kAnna, 100, At(0));
  EXPECT_NEAR(shares.UsedS(kAnna, At(3600)), 50, 1e-6);
  EXPECT_NEAR(shares.UsedS(kAnna, At(7200)), 25, 1e-6);
  shares.Add(kAnna, 75, At(7200));
  EXPECT_NEAR(shares.UsedS(kAnna, At(7200)), 100, 1e-6);
  EXPECT_EQ(shares.UsedS(kBert, At(0)), 0);
}

TEST(FairShares, RanksStayInOrderWithoutBeingTouched) {
  FairShares shares;
  shares.Add(kAnna, 1000, At(0));
  shares.Add(kBert, 10, At(0));
  const double anna = shares.RankOf(kAnna, 0, At(0)), bert = shares.RankOf(kBert, 0, At(0));
  EXPECT_GT(anna, bert);
  EXPECT_NEAR(shares.RankOf(kAnna, 0, At(86'400 * 30)), anna, 1e-6);
  EXPECT_LT(shares.RankOf(kCara, 0, At(1)), bert);
  shares.Prune(At(3600 * 5));  // 1000 is 31 by then, 10 is 0.3
  EXPECT_EQ(shares.size(), 1u);
}

// ---- where --------------------------------------------------------------------------------------

TEST(DevicePools, OneDeviceGoesWhereTheFewestAreFree) {
  DevicePools pools;
  DevicePool nearly_full = Pool(2, 6);
  nearly_full.free = 1;
  pools.Set(Pool(1, 6));
  pools.Set(nearly_full);
  EXPECT_EQ(pools.Pick({}, {}), (Parts{{{2}, "h100", 1}}));
  EXPECT_EQ(pools.Pick({.devices = 6}, {}), (Parts{{{1}, "h100", 6}}));
}

TEST(DevicePools, HintsByCase) {
  DevicePool dear = Pool(1, 2, "a"), cheap = Pool(2, 2, "b"), third = Pool(3, 2, "b");
  dear.price_per_hour = {900};
  cheap.price_per_hour = third.price_per_hour = {100};
  dear.memory_bytes = 80;
  cheap.memory_bytes = third.memory_bytes = 40;
  DevicePools pools;
  for (const DevicePool& pool : {dear, cheap, third}) pools.Set(pool);
  const std::set<WorkerId> barred = {{2}};
  const struct {
    const char* what;
    DeviceWish wish;
    PlaceHints hints;
    uint64_t worker;
  } cases[] = {
      {"the cheapest class", {}, {}, 2},
      {"a class by name", {.device_class = "a"}, {}, 1},
      {"enough memory", {.memory_bytes = 60}, {}, 1},
      {"the class that it had", {}, {.class_before = "a"}, 1},
      {"what is warm", {}, {.warm = {{3}}}, 3},
      {"not where it was lost", {}, {.last_resort = WorkerId{2}}, 3},
      {"barred", {}, {.barred = &barred}, 3},
      {"where its state is", {.only_on = WorkerId{1}}, {}, 1},
  };
  for (const auto& c : cases) {
    const auto parts = pools.Pick(c.wish, c.hints);
    ASSERT_TRUE(parts.has_value()) << c.what;
    EXPECT_EQ(parts->front().worker.value, c.worker) << c.what;
  }
  EXPECT_FALSE(pools.Pick({.memory_bytes = 81}, {}).has_value());
  EXPECT_FALSE(pools.Pick({.device_class = "c"}, {}).has_value());
}

TEST(DevicePools, WhereItWasLostIsTheLastResort) {
  DevicePools pools;
  pools.Set(Pool(1, 1));
  EXPECT_EQ(pools.Pick({}, {.last_resort = WorkerId{1}}), (Parts{{{1}, "h100", 1}}));
}

TEST(DevicePools, AWorkerOfOneAccountIsForNoOther) {
  DevicePools pools;
  DevicePool own = Pool(1, 2);
  own.only = kAnna;
  pools.Set(own);
  EXPECT_TRUE(pools.Pick({}, {.account = kAnna}).has_value());
  EXPECT_FALSE(pools.Pick({}, {.account = kBert}).has_value());
}

TEST(DevicePools, ManyDevicesComeFromOneClassAndFewWorkers) {
  DevicePools pools;
  for (uint64_t worker = 1; worker <= 4; ++worker) pools.Set(Pool(worker, 6));
  DevicePool rest = Pool(5, 6);
  rest.free = 2;
  pools.Set(rest);
  pools.Set(Pool(9, 100, "other"));
  // 6 + 6, and the last two from the worker that has no more than these.
  const auto parts = pools.Pick({.devices = 14, .device_class = "h100", .workers_max = 0}, {});
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->size(), 3u);
  EXPECT_EQ(parts->back(), (PlacedPart{{5}, "h100", 2}));
  EXPECT_FALSE(pools.Pick({.devices = 14, .device_class = "h100"}, {}).has_value());
  EXPECT_FALSE(
      pools.Pick({.devices = 27, .device_class = "h100", .workers_max = 0}, {}).has_value());
  EXPECT_EQ(pools.Largest({.device_class = "h100", .workers_max = 0}), 30u);
  EXPECT_EQ(pools.Largest({.device_class = "h100"}), 6u);
  EXPECT_EQ(pools.Largest({}), 100u);
}

TEST(DevicePools, OnlyThoseThatSpanWorkTogether) {
  DevicePools pools;
  for (uint64_t worker = 1; worker <= 3; ++worker) {
    DevicePool pool = Pool(worker, 4);
    pool.spans = worker > 1;
    pools.Set(pool);
  }
  const DeviceWish eight{.devices = 8, .workers_max = 0};
  const auto parts = pools.Pick(eight, {});
  ASSERT_TRUE(parts.has_value());
  for (const PlacedPart& part : *parts) EXPECT_NE(part.worker.value, 1u);
  EXPECT_EQ(pools.Largest(eight), 8u);
  const DeviceWish nine{.devices = 9, .workers_max = 0};
  EXPECT_FALSE(pools.Pick(nine, {}).has_value());
  EXPECT_FALSE(pools.Reserve(1, nine, {})) << "it would keep what it can never have";
  ASSERT_TRUE(pools.Reserve(1, eight, {}));
  EXPECT_TRUE(pools.PickReserved(eight, {}).has_value());
  EXPECT_TRUE(pools.Pick({.devices = 4}, {}).has_value()) << "of the one that does not span";
}

TEST(DevicePools, OnlyThoseOfOneBuildWorkTogether) {
  DevicePools pools;
  const auto set = [&](uint64_t worker, const std::string& build) {
    DevicePool pool = Pool(worker, 4);
    pool.build = build;
    pools.Set(pool);
  };
  // A rollout has come half way.
  for (uint64_t worker = 1; worker <= 5; ++worker) set(worker, worker <= 2 ? "new" : "old");
  const auto builds_of = [](const std::optional<Parts>& parts) {
    std::set<bool> is_new;
    for (const PlacedPart& part : *parts) is_new.insert(part.worker.value <= 2);
    return is_new.size();
  };
  const DeviceWish eight{.devices = 8, .workers_max = 0}, twelve{.devices = 12, .workers_max = 0},
      sixteen{.devices = 16, .workers_max = 0};
  for (const DeviceWish& wish : {eight, twelve}) {
    const auto parts = pools.Pick(wish, {});
    ASSERT_TRUE(parts.has_value());
    EXPECT_EQ(builds_of(parts), 1u);
  }
  EXPECT_FALSE(pools.Pick(sixteen, {}).has_value());
  EXPECT_EQ(pools.Largest(sixteen), 20u) << "once the rollout is over";
  EXPECT_FALSE(pools.Reserve(1, sixteen, {})) << "it would keep what it cannot have now";
  // Of the build that has enough: one device of an old worker is in use.
  pools.Take({{{4}, "h100", 1}});
  ASSERT_TRUE(pools.Reserve(1, twelve, {}));
  EXPECT_FALSE(pools.PickReserved(twelve, {}).has_value());
  EXPECT_TRUE(pools.Pick(eight, {}).has_value()) << "the new ones are nobody's";
  pools.GiveBack({{{4}, "h100", 1}});
  const auto parts = pools.PickReserved(twelve, {});
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(builds_of(parts), 1u);
  pools.EndReservation();
  for (uint64_t worker = 3; worker <= 5; ++worker) set(worker, "new");
  EXPECT_TRUE(pools.Pick(sixteen, {}).has_value());
}

TEST(DevicePools, AReservationIsOfABuildThatWillDo) {
  DevicePools pools;
  const auto set = [&](uint64_t worker, const std::string& build, uint32_t devices) {
    DevicePool pool = Pool(worker, devices);
    pool.build = build;
    pool.free = 0;
    pools.Set(pool);
  };
  // The build with the most devices has them on too many workers.
  for (uint64_t worker = 1; worker <= 8; ++worker) set(worker, "small", 2);
  for (uint64_t worker = 9; worker <= 10; ++worker) set(worker, "large", 4);
  const DeviceWish eight{.devices = 8, .workers_max = 2};
  ASSERT_TRUE(pools.Reserve(1, eight, {}));
  for (uint64_t worker = 9; worker <= 10; ++worker) {
    DevicePool pool = Pool(worker, 4);
    pool.build = "large";
    pools.Set(pool);
  }
  EXPECT_TRUE(pools.PickReserved(eight, {}).has_value());
  EXPECT_FALSE(pools.Pick({}, {}).has_value()) << "they are kept for it";
}

TEST(DevicePools, AReservationKeepsOthersOutAndEndsWithItsWorker) {
  DevicePools pools;
  DevicePool half = Pool(1, 4);
  half.free = 2;
  pools.Set(half);
  ASSERT_TRUE(pools.Reserve(7, {.devices = 4}, {}));
  EXPECT_FALSE(pools.Pick({}, {}).has_value());
  EXPECT_FALSE(pools.PickReserved({.devices = 4}, {}).has_value());
  pools.Set(Pool(1, 4));
  EXPECT_TRUE(pools.PickReserved({.devices = 4}, {}).has_value());
  pools.Set(Pool(1, 3));  // one went out of service: it can never be had
  EXPECT_EQ(pools.reserved_by(), std::nullopt);
  EXPECT_TRUE(pools.Pick({}, {}).has_value());
  pools.Set(Pool(2, 4));
  ASSERT_TRUE(pools.Reserve(8, {.devices = 4}, {}));
  pools.Erase({2});
  EXPECT_EQ(pools.reserved_by(), std::nullopt);
}

// What any order of changes leaves is what a fresh object with the same pools has.
TEST(DevicePools, RandomChangesAgreeWithAScan) {
  std::mt19937_64 random(11);
  DevicePools pools;
  std::map<std::pair<uint64_t, std::string>, DevicePool> model;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t worker = 1 + random() % 12;
    const std::string of_class = random() % 2 == 0 ? "a" : "b";
    switch (random() % 8) {
      case 0:
        pools.Erase({worker});
        std::erase_if(model, [&](const auto& e) { return e.first.first == worker; });
        break;
      case 1: pools.Reserve(1, {.devices = 1 + static_cast<uint32_t>(random() % 9)}, {}); break;
      case 2: pools.EndReservation(); break;
      default: {
        DevicePool pool = Pool(worker, static_cast<uint32_t>(random() % 7), of_class);
        pool.free = pool.total == 0 ? 0 : static_cast<uint32_t>(random() % (pool.total + 1));
        if (random() % 4 == 0) pool.only = kAnna;
        pools.Set(pool);
        model[{worker, of_class}] = pool;
      }
    }
    if (pools.reserved_by().has_value()) continue;
    const DeviceWish wish{.devices = 1 + static_cast<uint32_t>(random() % 9),
                          .workers_max = static_cast<uint32_t>(random() % 2)};
    std::map<std::string, uint32_t> sum, most, total;
    for (const auto& [key, pool] : model) {
      total[key.second] += pool.total;
      if (pool.only.has_value()) continue;
      sum[key.second] += pool.free;
      most[key.second] = std::max(most[key.second], pool.free);
    }
    const auto& have = wish.workers_max == 0 ? sum : most;
    const bool fits = std::any_of(have.begin(), have.end(),
                                  [&](const auto& e) { return e.second >= wish.devices; });
    const auto parts = pools.Pick(wish, {.account = kBert});
    ASSERT_EQ(parts.has_value(), fits) << i;
    if (!fits) continue;
    ASSERT_EQ(Shop::Devices(*parts), wish.devices);
    std::set<WorkerId> workers;
    for (const PlacedPart& part : *parts) {
      const DevicePool& pool = model.at({part.worker.value, part.pool_name});
      EXPECT_LE(part.devices, pool.free);
      EXPECT_FALSE(pool.only.has_value());
      EXPECT_EQ(part.pool_name, parts->front().pool_name);
      EXPECT_TRUE(workers.insert(part.worker).second);
    }
  }
}

// ---- who ----------------------------------------------------------------------------------------

TEST(DeviceQueue, ByTurnsOfAccountsNotOfRequests) {
  Shop shop({Pool(1, 1)});
  for (uint64_t i = 1; i <= 4; ++i) shop.Open(i, kAnna);
  shop.Open(5, kBert);
  EXPECT_EQ(shop.Start(), Sessions{1});
  EXPECT_EQ(shop.Order(), (Sessions{5, 2, 3, 4}));
  shop.Pass(10);
  shop.Leave(1);
  EXPECT_EQ(shop.Start(), Sessions{5});
  shop.Pass(10);
  shop.Leave(5);
  EXPECT_EQ(shop.Start(), Sessions{2});
}

TEST(DeviceQueue, PastUseCountsAndIsForgotten) {
  Shop shop({Pool(1, 1)});
  shop.Open(1, kAnna);
  shop.Start();
  shop.Pass(600);
  shop.Leave(1);
  shop.Open(2, kBert);
  shop.Start();
  shop.Pass(100);
  shop.Open(3, kAnna);  // asks first, but has used more
  shop.Open(4, kBert);
  shop.Leave(2);
  EXPECT_EQ(shop.Start(), Sessions{4});
  shop.Pass(900);  // and now Bert has
  shop.Open(5, kBert);
  shop.Leave(4);
  EXPECT_EQ(shop.Start(), Sessions{3});
}

TEST(DeviceQueue, WhoLostItsExecutorGoesFirst) {
  Shop shop({Pool(1, 1)});
  shop.Open(1, kAnna);
  shop.Start();
  shop.Open(2, kBert);
  shop.account[3] = kAnna;
  shop.Ask(3, kAnna, {}, /*first=*/true);
  shop.Leave(1);
  EXPECT_EQ(shop.Start(), Sessions{3});
}

TEST(DeviceQueue, AQuotaHoldsUntilADeviceIsGivenBack) {
  Shop shop({Pool(1, 4)}, /*quota=*/2);
  for (uint64_t i = 1; i <= 3; ++i) shop.Open(i, kAnna);
  shop.Open(4, kBert);
  EXPECT_EQ(shop.Start(), (Sessions{1, 4, 2}));
  const auto places = shop.queue.Positions(shop.now);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].reason, WaitReason::kQuota);
  shop.Leave(1);
  EXPECT_EQ(shop.Start(), Sessions{3});
}

TEST(DeviceQueue, AGangStartsTogetherOrWaits) {
  Shop shop({Pool(1, 2), Pool(2, 1)});
  const auto join = [&](uint64_t session) {
    shop.account[session] = kAnna;
    shop.queue.Add({.session = Session(session), .account = kAnna, .gang = "sweep", .gang_size = 3},
                   shop.now);
  };
  join(1);
  join(2);
  EXPECT_EQ(shop.Start(), Sessions{});
  EXPECT_EQ(shop.queue.Positions(shop.now)[0].reason, WaitReason::kGang);
  shop.Open(9, kBert);
  EXPECT_EQ(shop.Start(), Sessions{9});
  join(3);
  EXPECT_EQ(shop.Start(), Sessions{});  // two are free, three are wanted
  shop.Leave(9);
  EXPECT_EQ(shop.Start(), (Sessions{1, 2, 3}));
}

TEST(DeviceQueue, AGangThatLosesAMemberWaitsForAnother) {
  Shop shop({Pool(1, 2)});
  const auto join = [&](uint64_t session) {
    shop.account[session] = kAnna;
    shop.queue.Add({.session = Session(session), .account = kAnna, .gang = "g", .gang_size = 2},
                   shop.now);
  };
  join(1);
  join(2);
  shop.queue.Remove(Session(1), shop.pools);
  EXPECT_EQ(shop.Start(), Sessions{});
  join(3);
  EXPECT_EQ(shop.Start(), (Sessions{2, 3}));
  EXPECT_EQ(shop.queue.size(), 0u);
}

TEST(DeviceQueue, AGangThatCanNeverFitReservesNothing) {
  Shop shop({Pool(1, 3), Pool(2, 3)});
  for (const uint64_t id : {1, 2, 3}) {  // 6 devices in all, but a worker has two for one only
    shop.account[id] = kAnna;
    shop.queue.Add({.session = Session(id),
                    .account = kAnna,
                    .wish = {.devices = 2},
                    .gang = "g",
                    .gang_size = 3},
                   shop.now);
  }
  EXPECT_EQ(shop.Start(), Sessions{});
  EXPECT_EQ(shop.pools.reserved_by(), std::nullopt);
  shop.Open(9, kBert);
  EXPECT_EQ(shop.Start(), Sessions{9});
}

TEST(DeviceQueue, AnOwnerOverItsQuotaReservesNoMore) {
  Shop shop({Pool(1, 2)}, /*quota=*/2);
  shop.Open(1, kCara);
  shop.Start();
  shop.Open(2, kAnna, {.devices = 2});
  EXPECT_EQ(shop.Start(), Sessions{});
  ASSERT_TRUE(shop.pools.reserved_by().has_value());
  shop.queue.Took(kAnna, 1, shop.now);
  shop.Open(3, kBert);
  EXPECT_EQ(shop.Start(), Sessions{3});
}

TEST(DeviceQueue, TwoGatheringsOfOneNameThatMergeStart) {
  Shop shop({Pool(1, 1)});
  const auto join = [&](uint64_t session) {
    shop.account[session] = kAnna;
    shop.queue.Add({.session = Session(session), .account = kAnna, .gang = "g", .gang_size = 2},
                   shop.now);
  };
  for (const uint64_t id : {1, 2, 3}) join(id);
  shop.queue.Remove(Session(1), shop.pools);
  shop.pools.Set(Pool(1, 2));
  EXPECT_EQ(shop.Start(), (Sessions{3, 2}));
  EXPECT_EQ(shop.queue.size(), 0u);
}

TEST(DeviceQueue, AStreamOfSmallOnesDoesNotStarveALargeOne) {
  Shop shop({Pool(1, 4)});
  for (uint64_t i = 1; i <= 4; ++i) shop.Open(i, {static_cast<int64_t>(i)});
  shop.Start();
  shop.Pass(1);
  shop.Open(100, kAnna, {.devices = 4});
  for (uint64_t i = 5; i < 20; ++i) shop.Open(i, {static_cast<int64_t>(i)});
  // The small ones have used nothing and go first, until the large one is next.
  std::vector<uint64_t> running = {1, 2, 3, 4};
  int rounds = 0;
  while (!shop.held.contains(100) && ++rounds < 100) {
    shop.Pass(1);
    shop.Leave(running.front());
    running.erase(running.begin());
    for (const uint64_t id : shop.Start()) running.push_back(id);
    shop.Open(100 + static_cast<uint64_t>(rounds), {3});
    if (running.empty()) break;
  }
  EXPECT_TRUE(shop.held.contains(100)) << rounds;
}

TEST(DeviceQueue, WhatIsPassedOverWaitsOn) {
  Shop shop({Pool(1, 1)});
  shop.Open(1, kAnna);
  shop.Open(2, kAnna);
  const auto grants = shop.queue.Next(shop.pools, {Session(1)});
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].session, Session(2));
  EXPECT_TRUE(shop.queue.Has(Session(1)));
}

TEST(DeviceQueue, ExpectedWaitIsTheRateAtWhichDevicesBecomeFree) {
  Shop shop({Pool(1, 1)});
  EXPECT_FALSE(shop.queue.Has(Session(1)));
  shop.queue.Accrue(shop.pools, shop.now);
  for (uint64_t i = 1; i <= 12; ++i) shop.Open(i, {static_cast<int64_t>(i)});
  shop.Start();
  EXPECT_EQ(shop.queue.Positions(shop.now)[0].expected_s, std::nullopt);
  for (uint64_t i = 1; i <= 9; ++i) {
    shop.Pass(30);
    shop.Leave(i);
    ASSERT_EQ(shop.Start(), Sessions{i + 1});
  }
  const auto places = shop.queue.Positions(shop.now);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_NEAR(static_cast<double>(places[0].expected_s.value()), 30, 5);
  EXPECT_NEAR(static_cast<double>(places[1].expected_s.value()), 60, 10);
  EXPECT_EQ(places[1].before, 1u);
}

// Every request is granted once, devices are conserved, and nobody waits while the next one fits.
TEST(DeviceQueue, RandomShopsConserveDevices) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    Shop shop({Pool(1, 4), Pool(2, 6), Pool(3, 6), Pool(4, 2, "b")}, seed % 3 == 0 ? 8 : 0);
    uint64_t last = 0, started = 0;
    const auto start = [&] {
      for (const uint64_t id : shop.Start()) {
        started += id > 0;
        ASSERT_EQ(Shop::Devices(shop.held.at(id)) > 0, true);
      }
    };
    for (int i = 0; i < 600; ++i) {
      const TenantId account{1 + static_cast<int64_t>(random() % 5)};
      if (random() % 3 != 0) {
        const auto devices = static_cast<uint32_t>(random() % 4 == 0 ? 1 + random() % 8 : 1);
        shop.Open(++last, account,
                  {.devices = devices, .workers_max = static_cast<uint32_t>(devices > 6 ? 0 : 1)});
      } else if (!shop.held.empty()) {
        auto at = shop.held.begin();
        std::advance(at, random() % shop.held.size());
        shop.Leave(at->first);
      }
      if (random() % 4 == 0) shop.Pass(1);
      start();
      uint32_t held = 0, free = 0;
      for (const auto& [id, parts] : shop.held) held += Shop::Devices(parts);
      for (const DevicePool& pool : shop.pools.All()) free += pool.free;
      ASSERT_EQ(held + free, 18u) << seed;
      ASSERT_EQ(started + shop.queue.size(), last) << seed;
      ASSERT_EQ(shop.queue.Positions(shop.now).size(), shop.queue.size());
    }
    for (int i = 0; i < 5000 && shop.queue.size() > 0; ++i) {
      ASSERT_FALSE(shop.held.empty()) << seed << ": somebody waits for an empty fleet";
      shop.Leave(shop.held.begin()->first);
      shop.Pass(1);
      start();
    }
    EXPECT_EQ(shop.queue.size(), 0u) << seed;
    EXPECT_EQ(started, last) << seed;
  }
}

// As after a restart: who used much before it is behind who did not.
TEST(DeviceQueueTest, UseBeforeTheQueue_CountsInItsOrder) {
  Shop shop({Pool(1, 1)});
  shop.queue.RememberUse(kAnna, 1000, shop.now);
  shop.Open(1, kAnna);
  shop.Open(2, kBert);
  EXPECT_EQ(shop.Start(), (std::vector<uint64_t>{2}));
  shop.Leave(2);
  shop.queue.RememberUse(kBert, 5000, shop.now);  // also of one that is known already
  shop.Open(3, kBert);
  EXPECT_EQ(shop.Start(), (std::vector<uint64_t>{1}));
}

}  // namespace
}  // namespace outboard::gateway
