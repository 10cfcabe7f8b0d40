// What a session is charged for: RUN, HELD, PARKED and STORED at prices of its device's class, and
// which devices it may have (G18 and gateway/core/use_states.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/gateway/core_world.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::World;

// A thousandth of a dollar a second, and so on: amounts are easy to see.
constexpr MicroUsd PerSecond(int64_t micros) { return {3600 * micros}; }
const IdlePrices kIdle{.held = PerSecond(100), .parked = PerSecond(10), .stored = PerSecond(1)};

CoreOptions Snapshots() {
  CoreOptions options;
  options.snapshot_ns = 3600 * kSecondNs;
  return options;
}

DeviceSlot Device(std::string price_class = "small", uint64_t memory_bytes = uint64_t{8} << 30) {
  return {"x86", memory_bytes, PerSecond(1000), std::move(price_class), kIdle};
}

struct PricesWorld : World {
  explicit PricesWorld(CoreOptions options = Snapshots()) : World(options, /*sleeps=*/true) {
    JoinWith(1, {Device()});
  }
  void JoinWith(uint64_t worker, std::vector<DeviceSlot> devices) {
    WorkerJoined joined{WorkerId{worker}, "w#", std::move(devices),
                        "node" + std::to_string(worker), {}};
    joined.snapshots_when_asked = true;
    Tell(joined);
  }
  void Step(const SessionId& id, double seconds, bool works, bool busy = false) {
    for (double t = 0.1; t < seconds; t += 0.2) {
      now_ns += kSecondNs / 5;
      Tell(SessionProgress{id, busy, works ? ++done : done});
      for (uint64_t worker : {1, 2}) Tell(WorkerHeartbeat{{worker}, {id}});
      Tell(Tick{});
    }
  }
  void Work(const SessionId& id, double seconds) { Step(id, seconds, true); }
  void Idle(const SessionId& id, double seconds) { Step(id, seconds, false); }

  // Whole milliseconds and micro-dollars that were posted, by state.
  std::map<UseState, std::pair<int64_t, int64_t>> Posted() const {
    std::map<UseState, std::pair<int64_t, int64_t>> sums;
    for (const Action& action : history) {
      const auto* const post = std::get_if<Post>(&action);
      if (post == nullptr) continue;
      for (const Charge& charge : post->charges) {
        sums[charge.use].first += charge.to_ms - charge.from_ms;
        sums[charge.use].second += charge.amount.value;
      }
    }
    return sums;
  }
  uint64_t done = 0;
};

// A moment with steps in flight is ours to give, one without is not.
TEST(CorePrices, HeldWithoutMoney_GivesItsDeviceBackAtOnce) {
  for (const auto& [recovers, has_work] :
       {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    World w(recovers ? Snapshots() : CoreOptions{});
    w.asks_money = true;
    WorkerJoined joined{WorkerId{1}, "w#", {Device()}, "node1", {}};
    joined.exclusive = joined.snapshots_when_asked = true;
    w.Tell(joined);
    const SessionId id = w.Open(1);
    const auto answer = [&](int64_t funded_ms, absl::Status why) {
      for (auto action = w.history.rbegin(); action != w.history.rend(); ++action)
        if (const auto* hold = std::get_if<TakeHold>(&*action))
          return w.Tell(HoldAnswered{id, hold->number, {funded_ms, std::move(why)}});
    };
    const auto is_held = [&] {
      return w.Get<BeginLease>() != nullptr && w.Get<BeginLease>()->use == UseState::kHeld;
    };
    const auto beat = [&](uint64_t done_seq, bool busy = false) {
      w.now_ns += kSecondNs / 5;
      w.Tell(WorkerHeartbeat{WorkerId{1}, {id}});
      w.Tell(SessionProgress{id, busy, done_seq});
      w.Tell(Tick{});
    };
    answer(kHoldMs, absl::OkStatus());
    w.Tell(ExecutorAttached{id, WallTime{}});
    ASSERT_NE(w.Get<Live>(), nullptr);
    for (int i = 0; i < 40 && !is_held(); ++i) beat(1);
    ASSERT_TRUE(is_held());
    answer(0, absl::ResourceExhaustedError("the cap, which is lower now"));
    if (has_work) {  // that came before the session could begin to RUN
      beat(1, /*busy=*/true);
      for (int i = 0; i < 10; ++i) beat(1, /*busy=*/true);
      EXPECT_EQ(w.core.devices_busy(), 1u) << recovers;
      beat(2);
    }
    beat(1);
    beat(1);
    EXPECT_EQ(w.core.devices_busy(), 0u) << recovers;
    EXPECT_EQ(w.core.Has(id), recovers);
  }
}

void ExpectNear(std::pair<int64_t, int64_t> posted, double seconds, int64_t micros_per_s) {
  EXPECT_NEAR(static_cast<double>(posted.first), 1000 * seconds, 500);
  EXPECT_NEAR(static_cast<double>(posted.second), seconds * static_cast<double>(micros_per_s),
              0.5 * static_cast<double>(micros_per_s) + 2);
}

TEST(CorePrices, ADay_EachStateAtItsPrice) {
  PricesWorld w;
  const SessionId id = w.OpenLive(1);
  w.Work(id, 20);
  w.Idle(id, 30);  // 5 s RUN, then HELD
  w.Work(id, 10);
  w.Idle(id, 61);  // 5 s RUN, 55 s HELD, then parked
  w.Tell(SnapshotKept{id, "root", w.done});
  w.Idle(id, 660);  // to disk after ten minutes
  w.Idle(id, 300);
  w.Tell(ClientClosed{ConnId{1}});
  const auto posted = w.Posted();
  ExpectNear(posted.at(UseState::kRun), 20 + 5 + 10 + 5, 1000);
  ExpectNear(posted.at(UseState::kHeld), 25 + 55, 100);
  EXPECT_NEAR(static_cast<double>(posted.at(UseState::kParked).first), 600'000, 1500);
  EXPECT_NEAR(static_cast<double>(posted.at(UseState::kStored).first), 360'000, 2500);
  EXPECT_NEAR(static_cast<double>(posted.at(UseState::kParked).second), 6000, 15);
  EXPECT_NEAR(static_cast<double>(posted.at(UseState::kStored).second), 360, 3);
}

// The machine and its memory are the account's, the gateway's disk is not.
TEST(CorePrices, OfAnOwnMachine_StateOnTheGatewaysDisk_CostsAsOfTheCheapestClass) {
  PricesWorld w;
  w.Tell(PricesSet{{{"large", PerSecond(3000), {.stored = PerSecond(7)}},
                    {"small", PerSecond(1000), kIdle}}});
  WorkerJoined joined{WorkerId{2}, "home#2", {{"x86", uint64_t{8} << 30, {}, kOwnMachines}},
                      "node2", {}};
  joined.snapshots_when_asked = true;
  joined.owner = kTenant;
  w.Tell(joined);
  const SessionId id = w.OpenLive(1);
  EXPECT_EQ(w.Get<Live>()->price_class, kOwnMachines);
  w.Work(id, 20);
  w.Idle(id, 61);
  w.Tell(SnapshotKept{id, "root", w.done});
  w.Idle(id, 660);
  w.Idle(id, 300);
  w.Tell(ClientClosed{ConnId{1}});
  const auto posted = w.Posted();
  EXPECT_EQ(posted.at(UseState::kRun).second, 0);
  EXPECT_FALSE(posted.contains(UseState::kParked));
  EXPECT_NEAR(static_cast<double>(posted.at(UseState::kStored).second), 360, 3);
  for (const Action& action : w.history) {
    const auto* const lease = std::get_if<BeginLease>(&action);
    if (lease == nullptr) continue;
    EXPECT_EQ(lease->price_class, lease->use == UseState::kStored ? "small" : kOwnMachines);
  }
}

TEST(CorePrices, Bill_HasAllAmountsAndTheTimeOfDevices) {
  PricesWorld w;
  const SessionId id = w.OpenLive(1);
  w.Work(id, 10);
  w.Idle(id, 600);
  const Bill bill = w.core.BillOf(id);
  EXPECT_NEAR(static_cast<double>(bill.ms), 70'000, 500) << "no time is a device's but these";
  int64_t due = 15 * 1000 + 55 * 100 + 540 * 10;
  EXPECT_NEAR(static_cast<double>(bill.amount.value), static_cast<double>(due), 600);
  w.Tell(ClientClosed{ConnId{1}});
  int64_t posted = 0;
  for (const auto& [use, sum] : w.Posted()) posted += sum.second;
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(posted, w.Get<EndClient>()->bill.amount.value) << "lines add up to the total";
}

// Every lease has a number of its own, and a row: a gateway that is started again counts on.
TEST(CorePrices, EachState_IsALeaseOfItsOwn) {
  PricesWorld w;
  const SessionId id = w.OpenLive(1);
  w.Idle(id, 70);
  std::vector<std::pair<uint64_t, UseState>> begun, ended;
  for (const Action& action : w.history) {
    if (const auto* const lease = std::get_if<BeginLease>(&action))
      begun.emplace_back(lease->lease.grant, lease->use);
    if (const auto* const lease = std::get_if<EndLease>(&action))
      ended.emplace_back(lease->lease.grant, lease->use);
  }
  using Leases = std::vector<std::pair<uint64_t, UseState>>;
  EXPECT_EQ(begun, (Leases{{1, UseState::kRun}, {2, UseState::kHeld}, {3, UseState::kParked}}));
  EXPECT_EQ(ended, (Leases{{1, UseState::kRun}, {2, UseState::kHeld}}));
}

TEST(CorePrices, WithoutAPriceFile_AllIsRunAndNothingIsKept) {
  PricesWorld w;
  w.JoinWith(2, {{"x86", uint64_t{8} << 30}});
  w.Tell(WorkerDraining{WorkerId{1}});
  const SessionId id = w.OpenLive(1);
  w.Work(id, 5);
  w.Idle(id, 900);
  w.Tell(ClientClosed{ConnId{1}});
  const auto posted = w.Posted();
  ASSERT_EQ(posted.size(), 1u);
  EXPECT_NEAR(static_cast<double>(posted.at(UseState::kRun).first), 65'000, 500);
}

TEST(CorePrices, AWorkingSession_IsNeverHeld) {
  PricesWorld w;
  const SessionId id = w.OpenLive(1);
  w.Step(id, 90, /*works=*/false, /*busy=*/true);  // one long step
  for (int i = 0; i < 10; ++i) {                   // short ones with pauses
    w.Work(id, 0.4);
    w.Idle(id, 4);
  }
  w.Tell(ClientClosed{ConnId{1}});
  EXPECT_EQ(w.Posted().size(), 1u);
}

TEST(CorePrices, APrice_IsFrozenForASession) {
  PricesWorld w;
  const SessionId old = w.OpenLive(1);
  w.JoinWith(2, {Device()});
  w.Tell(PricesSet{{{"small", PerSecond(5000), {}}, {"other", PerSecond(1), {}}}});
  const SessionId young = w.OpenLive(2);
  EXPECT_EQ(w.Get<Live>()->price_per_hour, PerSecond(5000));
  EXPECT_EQ(w.Get<Live>()->price_class, "small");
  w.Idle(old, 70);
  w.Tell(ClientActs{ConnId{1}});  // a new lease of the old session
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->price_per_hour, PerSecond(1000));
  EXPECT_EQ(w.Get<Live>()->idle_prices, kIdle);
  EXPECT_TRUE(w.core.Has(young));
}

TEST(CorePrices, OnADeviceOfAnotherClass_ASessionHasItsPrice) {
  PricesWorld w;
  const SessionId id = w.OpenLive(1);
  w.Work(id, 1);
  w.Tell(SnapshotKept{id, "root", w.done});
  DeviceSlot large = Device("large");
  large.price_per_hour = PerSecond(3000);
  w.JoinWith(2, {large});
  w.Tell(WorkerGone{WorkerId{1}});
  w.Silence(3);
  w.Tell(ExecutorAttached{id, WallTime{}, 0});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->price_per_hour, PerSecond(3000));
}

TEST(CorePrices, ClassesInUse_AreThoseOfDevicesAndSessions) {
  PricesWorld w;
  w.JoinWith(2, {Device("large")});
  EXPECT_EQ(w.core.ClassesInUse(), (std::set<std::string>{"large", "small"}));
  w.Tell(WorkerGone{WorkerId{2}});
  EXPECT_EQ(w.core.ClassesInUse(), std::set<std::string>{"small"});
  const SessionId id = w.OpenLive(1);
  w.Tell(SnapshotKept{id, "root", 0});
  w.Tell(WorkerGone{WorkerId{1}});
  EXPECT_EQ(w.core.ClassesInUse(), std::set<std::string>{"small"}) << "of the session";
}

// ---- which devices ------------------------------------------------------------------------------

ClientOpen OpenFor(uint64_t conn, std::string device_class, uint64_t memory_bytes) {
  ClientOpen open{ConnId{conn}, kTenant, 1, SessionId{0, conn}, Token{1, conn}, WallTime{}};
  open.device_class = std::move(device_class);
  open.memory_bytes = memory_bytes;
  return open;
}

TEST(CorePrices, AClassAndMemory_ArePlacedAccordingly) {
  PricesWorld w;  // worker 1: small, 8 GiB
  w.JoinWith(2, {Device("large", uint64_t{80} << 30)});
  w.JoinWith(3, {Device("large", uint64_t{40} << 30)});
  w.Tell(OpenFor(1, "large", 0));
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_NE(w.Get<Assign>()->worker, WorkerId{1});
  const WorkerId first = w.Get<Assign>()->worker;
  w.Tell(ClientClosed{ConnId{1}});
  w.Tell(OpenFor(2, "", uint64_t{50} << 30));
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
  w.Tell(OpenFor(3, "small", 0));
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{1});
  w.Tell(OpenFor(4, "small", 0));
  EXPECT_EQ(w.Get<Assign>(), nullptr) << "it waits, though another class is free";
  EXPECT_NE(w.Get<Queued>(), nullptr);
  EXPECT_TRUE(first == WorkerId{2} || first == WorkerId{3});
}

TEST(CorePrices, WhatNoDeviceHas_IsRefusedAfterTheLimit) {
  PricesWorld w;
  w.Tell(OpenFor(1, "small", uint64_t{9} << 30));
  w.Pass(25, {WorkerId{1}});
  const auto ended = std::find_if(w.history.begin(), w.history.end(), [](const Action& action) {
    return std::holds_alternative<EndClient>(action);
  });
  ASSERT_NE(ended, w.history.end());
  const absl::Status why = std::get<EndClient>(*ended).why;
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(why.message()).find("class small"), std::string::npos) << why;
}

// ---- money --------------------------------------------------------------------------------------

struct FundedWorld : PricesWorld {
  explicit FundedWorld(CoreOptions options = Snapshots()) : PricesWorld(options) {
    asks_money = true;
  }
  const TakeHold* Asked() const {
    const TakeHold* last = nullptr;
    for (const Action& action : actions)
      if (const auto* const take = std::get_if<TakeHold>(&action)) last = take;
    return last;
  }
  void Answer(const TakeHold& asked, int64_t funded_ms, absl::Status why = absl::OkStatus()) {
    Tell(HoldAnswered{asked.request.lease.session, asked.number, {funded_ms, std::move(why)}});
  }
  // Steps of 200 ms until something is asked for.
  std::optional<TakeHold> IdleUntilAsked(const SessionId& id, double seconds) {
    for (double t = 0; t < seconds; t += 0.2) {
      now_ns += kSecondNs / 5;
      Tell(SessionProgress{id, false, done});
      Tell(WorkerHeartbeat{{1}, {id}});
      Tell(Tick{});
      if (const TakeHold* const asked = Asked()) return *asked;
    }
    return std::nullopt;
  }
};

TEST(CorePrices, Holds_AreOfTheStatesPrice_AndNothingIsChargedBefore) {
  FundedWorld w;
  const SessionId id = w.Open(1);
  const TakeHold first = *w.Asked();
  EXPECT_EQ(first.request.prices_per_hour, std::vector<MicroUsd>{PerSecond(1000)});
  w.Answer(first, kHoldMs);
  w.Tell(ExecutorAttached{id, WallTime{}});
  const auto held = w.IdleUntilAsked(id, 10);
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->request.prices_per_hour, std::vector<MicroUsd>{*kIdle.held});
  EXPECT_EQ(held->request.lease.grant, first.request.lease.grant + 1);
  w.Idle(id, 10);  // no answer yet: at our expense
  EXPECT_EQ(w.Posted().count(UseState::kHeld), 0u);
  w.Answer(*held, kHoldMs);
  w.Idle(id, 20);
  w.Tell(ClientClosed{ConnId{1}});
  ExpectNear(w.Posted().at(UseState::kHeld), 20, 100);
}

TEST(CorePrices, StateThatNobodyPaysFor_IsKeptForNothing) {
  FundedWorld w;
  const SessionId id = w.Open(1);
  w.Answer(*w.Asked(), kHoldMs);
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Work(id, 1);
  for (;;) {
    const auto asked = w.IdleUntilAsked(id, 100);
    ASSERT_TRUE(asked.has_value());
    if (asked->request.prices_per_hour.front() == kIdle.parked) {
      EXPECT_EQ(asked->request.to_ms, 600'000);
      w.Answer(*asked, 0, absl::ResourceExhaustedError("the cap"));
      break;
    }
    w.Answer(*asked, asked->request.to_ms);
  }
  EXPECT_FALSE(w.IdleUntilAsked(id, 300).has_value()) << "it is asked for once";
  EXPECT_TRUE(w.core.Has(id));
  EXPECT_EQ(w.Posted().count(UseState::kParked), 0u);
}

// At a limit the step that ends a pause ends, too, and the state stays: also where there are no
// snapshots.
TEST(CorePrices, WorkAfterAPause_ThatNobodyPaysFor_EndsItsStepsAndIsParked) {
  FundedWorld w{CoreOptions()};
  const SessionId id = w.Open(1);
  w.Answer(*w.Asked(), kHoldMs);
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Work(id, 1);
  const auto held = w.IdleUntilAsked(id, 10);
  ASSERT_TRUE(held.has_value());
  w.Answer(*held, kHoldMs);
  w.Step(id, 0.4, /*works=*/false, /*busy=*/true);
  const TakeHold* run = nullptr;
  for (const Action& action : w.history)
    if (const auto* const take = std::get_if<TakeHold>(&action)) run = take;
  ASSERT_NE(run, nullptr);
  ASSERT_EQ(run->request.prices_per_hour, std::vector<MicroUsd>{PerSecond(1000)});
  w.Answer(TakeHold(*run), 0, absl::ResourceExhaustedError("the cap"));
  w.Step(id, 2, /*works=*/false, /*busy=*/true);
  EXPECT_TRUE(w.core.Has(id));
  w.Step(id, 1, /*works=*/true);
  w.Idle(id, 1);
  EXPECT_TRUE(w.core.Has(id)) << "parked, for when it is paid for again";
  EXPECT_EQ(w.core.devices_busy(), 0u);
}

TEST(CorePrices, AParkedSessionWhoseWorkerIsLost_PaysUpToTheLastSignOfLife) {
  PricesWorld w;
  const SessionId id = w.OpenLive(1);
  w.Idle(id, 61);
  w.Idle(id, 100);
  w.Silence(3);
  w.Tell(WorkerGone{WorkerId{1}});
  // From its sleep after 59.5 s on, and nothing of the 3 s of silence.
  EXPECT_NEAR(static_cast<double>(w.Posted().at(UseState::kParked).first), 101'400, 400);
}

}  // namespace
}  // namespace outboard::gateway
