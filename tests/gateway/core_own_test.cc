// Machines of an account's own: a class at no price that only this account sees (G19), from which
// its programs overflow to rented devices, if somebody pays for these.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/gateway/core_world.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::World;

constexpr TenantId kOther{8};
constexpr uint64_t kOwn = 1, kRented = 2;

CoreOptions Quota(uint32_t devices) {
  CoreOptions options;
  options.devices_per_tenant_max = devices;
  return options;
}

struct OwnWorld : World {
  explicit OwnWorld(CoreOptions options = {}) : World(options) {}
  void JoinOwn(uint32_t devices = 1, TenantId owner = kTenant) {
    WorkerJoined joined{WorkerId{kOwn}, "home#1", {}, "node1", {}};
    joined.devices.assign(devices, {"x86", uint64_t{8} << 30, {}, kOwnMachines});
    joined.owner = owner;
    Tell(joined);
  }
  void JoinRented(uint32_t devices = 1) { Join(kRented, devices); }
  SessionId OpenAs(uint64_t conn, const std::string& device_class, TenantId tenant = kTenant) {
    ClientOpen open{ConnId{conn}, tenant, 1, SessionId{0, conn}, Token{1, conn}, WallTime{}};
    open.device_class = device_class;
    Tell(open);
    return open.session;
  }
  std::optional<WorkerId> Placed() const {
    const Assign* const assign = Get<Assign>();
    return assign == nullptr ? std::nullopt : std::optional(assign->worker);
  }
};

TEST(CoreOwn, OnesOwnFirst_ThenRented) {
  OwnWorld w;
  w.JoinRented();
  w.JoinOwn();
  w.Open(1);
  EXPECT_EQ(w.Placed(), WorkerId{kOwn});
  w.Open(2);
  EXPECT_EQ(w.Placed(), WorkerId{kRented});
  w.Open(3);
  EXPECT_EQ(w.Placed(), std::nullopt);
}

// Whoever has the machine can stop it, and has its executor say what is done: minutes there, for
// nothing, were twice as many on a rented device for nothing.
TEST(CoreOwn, WhatIsRepeatedOnARentedDevice_SinceOnesOwnWasLost_IsCharged) {
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  OwnWorld w(options);
  w.JoinOwn();
  const SessionId id = w.OpenLive(1);
  const auto work = [&](uint64_t worker, int seconds, uint64_t done_seq) {
    for (int i = 0; i < 5 * seconds; ++i) {
      w.now_ns += kSecondNs / 5;
      for (const uint64_t joined : {kOwn, kRented}) w.Tell(WorkerHeartbeat{WorkerId{joined}, {}});
      w.Tell(WorkerHeartbeat{WorkerId{worker}, {id}});
      w.Tell(SessionProgress{id, true, done_seq});
      w.Tell(Tick{});
    }
  };
  work(kOwn, 20, 1'000'000);
  w.JoinRented();
  w.Tell(WorkerGone{WorkerId{kOwn}});
  w.After(3);
  ASSERT_EQ(w.core.WorkerOf(id), WorkerId{kRented});
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  const int64_t before = w.core.BillOf(id).amount.value;
  const int64_t before_ms = w.core.BillOf(id).ms;
  work(kRented, 10, 5);
  EXPECT_EQ(w.core.BillOf(id).ms - before_ms, 10'000);
  EXPECT_GT(w.core.BillOf(id).amount.value, before);
}

TEST(CoreOwn, ItCostsNothing_AndARentedOneItsPrice) {
  OwnWorld w;
  w.JoinRented();
  w.JoinOwn();
  const SessionId own = w.OpenLive(1);
  EXPECT_EQ(w.Get<Live>()->price_per_hour, MicroUsd{});
  EXPECT_EQ(w.Get<Live>()->price_class, kOwnMachines);
  const SessionId rented = w.OpenLive(2);
  EXPECT_EQ(w.Get<Live>()->price_per_hour, kDefaultPricePerHour);
  w.Pass(3600, {WorkerId{kOwn}, WorkerId{kRented}}, {own, rented});
  EXPECT_EQ(w.core.BillOf(own).amount, MicroUsd{});
  EXPECT_EQ(w.core.BillOf(own).ms, 3'600'000);
  EXPECT_NEAR(static_cast<double>(w.core.BillOf(rented).amount.value), 500'000, 1);
}

TEST(CoreOwn, G19NobodyElseSeesIt) {
  OwnWorld w;
  w.JoinOwn(2);
  w.Open(1, kOther);
  EXPECT_EQ(w.Placed(), std::nullopt);
  w.Pass(25, {WorkerId{kOwn}});
  bool refused = false;
  for (const Action& action : w.history)
    if (const auto* const end = std::get_if<EndClient>(&action)) refused |= !end->why.ok();
  EXPECT_TRUE(refused) << "no device of the fleet could ever serve it";
  w.OpenAs(2, kOwnMachines, kOther);
  EXPECT_EQ(w.Placed(), std::nullopt);
}

TEST(CoreOwn, AskedForAlone_ItIsWaitedFor) {
  OwnWorld w;
  w.JoinRented(4);
  w.JoinOwn();
  w.OpenAs(1, kOwnMachines);
  EXPECT_EQ(w.Placed(), WorkerId{kOwn});
  w.OpenAs(2, kOwnMachines);
  EXPECT_EQ(w.Placed(), std::nullopt) << "rented ones are free";
  EXPECT_NE(w.Get<Queued>(), nullptr);
  w.Tell(ClientClosed{ConnId{1}});
  EXPECT_EQ(w.Placed(), WorkerId{kOwn});
}

TEST(CoreOwn, ItCountsForNoQuotaAndNoShare) {
  OwnWorld w(Quota(1));
  w.JoinRented(2);
  w.Open(1);
  EXPECT_EQ(w.Placed(), WorkerId{kRented});
  w.JoinOwn(2);
  w.Open(2);
  EXPECT_EQ(w.Placed(), WorkerId{kOwn}) << "beyond the quota of rented ones";
  w.Open(3);
  EXPECT_EQ(w.Placed(), WorkerId{kOwn});
  w.Open(4);
  EXPECT_EQ(w.Placed(), std::nullopt) << "the quota";
}

TEST(CoreOwn, WhoWaitsForHisOwn_NeedsNoQuota) {
  OwnWorld w(Quota(1));
  w.JoinOwn();
  w.JoinRented(2);
  w.Open(1);
  EXPECT_EQ(w.Placed(), WorkerId{kOwn});
  w.Open(2);
  EXPECT_EQ(w.Placed(), WorkerId{kRented}) << "all that it may rent";
  const SessionId third = w.OpenAs(3, kOwnMachines);
  EXPECT_EQ(w.Placed(), std::nullopt);
  w.Tell(ClientClosed{ConnId{1}});
  ASSERT_EQ(w.Placed(), WorkerId{kOwn});
  EXPECT_EQ(w.Get<Assign>()->session, third);
}

TEST(CoreOwn, ASessionOfItsOwnMachines_MayHaveMoreThanTheQuota) {
  OwnWorld w(Quota(1));
  WorkerJoined joined{WorkerId{kOwn}, "home#1", {}, "node1", {}};
  joined.devices.assign(2, {"x86", uint64_t{8} << 30, {}, kOwnMachines});
  joined.owner = kTenant;
  joined.serves_groups = true;
  w.Tell(joined);
  ClientOpen open{ConnId{1}, kTenant, 2, SessionId{0, 1}, Token{1, 1}, WallTime{}};
  open.device_class = kOwnMachines;
  w.Tell(open);
  EXPECT_EQ(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Placed(), WorkerId{kOwn});
}

// A cap does not end a program that can wait for a device of its own.
TEST(CoreOwn, WhoMayNotRent_WaitsForHisOwn) {
  OwnWorld w;
  w.asks_money = true;
  w.JoinRented();
  w.JoinOwn();
  const auto answer = [&](int64_t funded_ms, absl::Status why) {
    const TakeHold asked = *w.Get<TakeHold>();
    w.Tell(HoldAnswered{asked.request.lease.session, asked.number, {funded_ms, std::move(why)}});
  };
  w.Open(1);
  EXPECT_EQ(w.Get<TakeHold>()->request.prices_per_hour, std::vector<MicroUsd>{MicroUsd{}});
  answer(kHoldMs, absl::OkStatus());
  const SessionId second = w.Open(2);
  EXPECT_EQ(w.Placed(), WorkerId{kRented});
  answer(0, absl::ResourceExhaustedError("the cap"));
  EXPECT_EQ(w.Get<EndClient>(), nullptr);
  EXPECT_NE(w.Get<Queued>(), nullptr);
  EXPECT_EQ(w.core.devices_busy(), 1u);
  w.Tell(ClientClosed{ConnId{1}});
  ASSERT_TRUE(w.Placed().has_value());
  EXPECT_EQ(*w.Placed(), WorkerId{kOwn});
  EXPECT_EQ(w.Get<Assign>()->session, second);
}

// And one with a key that can pay does not wait behind a key that could not.
TEST(CoreOwn, WhoWaitsForHisOwn_IsEnteredByAKeyThatMayRent) {
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  OwnWorld w(options);
  w.asks_money = true;
  w.JoinRented();
  w.JoinOwn();
  const auto answer = [&](int64_t funded_ms, absl::Status why) {
    const TakeHold asked = *w.Get<TakeHold>();
    w.Tell(HoldAnswered{asked.request.lease.session, asked.number, {funded_ms, std::move(why)}});
  };
  w.Open(1);
  answer(kHoldMs, absl::OkStatus());
  const SessionId second = w.Open(2);
  answer(kHoldMs, absl::OkStatus());
  w.Tell(ExecutorAttached{second, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  w.Tell(ExecutorGone{second, absl::UnavailableError("signal 9"), true});
  answer(0, absl::ResourceExhaustedError("the cap of its key"));
  EXPECT_NE(w.Get<Queued>(), nullptr);
  ClientResume resume{ConnId{3}, kTenant, Token{1, 2}, {}};
  resume.key_id = "other";
  w.Tell(resume);
  EXPECT_EQ(w.Placed(), WorkerId{kRented});
  EXPECT_EQ(w.Get<TakeHold>()->request.key_id, "other");
}

// What its client asks for as it comes back is what the session waits for, no longer what it asked
// for before.
TEST(CoreOwn, WhoComesBackToTheQueue_WaitsForTheClassThatItAsksFor) {
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  OwnWorld w(options);
  w.JoinRented();
  const SessionId id = w.OpenLive(1);
  w.Tell(WorkerGone{WorkerId{kRented}});
  w.After(3);
  ClientResume resume{ConnId{2}, kTenant, Token{1, 1}, {}};
  resume.device_class = kOwnMachines;
  w.Tell(resume);
  EXPECT_NE(w.Get<Queued>(), nullptr);
  w.Join(3);
  EXPECT_EQ(w.Placed(), std::nullopt);
  w.JoinOwn();
  ASSERT_EQ(w.Placed(), WorkerId{kOwn});
  EXPECT_EQ(w.Get<Assign>()->session, id);
}

TEST(CoreOwn, WithoutOne_ACapEndsTheSession) {
  OwnWorld w;
  w.asks_money = true;
  w.JoinRented();
  w.JoinOwn(1, kOther);
  w.Open(1);
  const TakeHold asked = *w.Get<TakeHold>();
  w.Tell(HoldAnswered{
      asked.request.lease.session, asked.number, {0, absl::ResourceExhaustedError("the cap")}});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::gateway
