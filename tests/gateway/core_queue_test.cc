// Who waits for a device, what they are told, and where a worker's sessions go when it is stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/gateway/core_world.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::World;

constexpr TenantId kOther{8};

TEST(GatewayCoreQueue, G7TheQueueEndsWhereNoWorkerCouldEverServe) {
  const struct {
    const char* what;
    absl::StatusCode code;
  } cases[] = {{"no worker", absl::StatusCode::kUnavailable},
               {"draining", absl::StatusCode::kResourceExhausted},
               {"out of service", absl::StatusCode::kResourceExhausted},
               {"set aside", absl::StatusCode::kUnavailable}};
  for (const auto& c : cases) {
    World w;
    const std::string what = c.what;
    if (what != "no worker") w.Join(1);
    if (what == "draining") w.Tell(WorkerDraining{WorkerId{1}});
    if (what == "out of service") w.Tell(DeviceWentOut{WorkerId{1}, 0});
    if (what == "set aside") w.Tell(WorkerSetAside{WorkerId{1}});
    w.Open(2);
    w.Pass(20, {WorkerId{1}});
    EXPECT_EQ(w.core.session_count(), 1u) << what;
    w.After(0.5);
    ASSERT_NE(w.Get<EndClient>(), nullptr) << what;
    EXPECT_EQ(w.Get<EndClient>()->why.code(), c.code) << what;
  }
}

TEST(GatewayCoreQueue, TheQueueHasNoEndUnlessTheClientAsksForOne) {
  World w;
  w.Join(1);
  w.OpenLive(1);
  const SessionId patient = w.Open(2);
  w.OpenFor(30, 3);
  w.Pass(30, {WorkerId{1}}, {SessionId{0, 1}});
  EXPECT_EQ(w.core.session_count(), 3u);
  w.After(0.5);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->conn, ConnId{3});
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kResourceExhausted);
  w.Pass(3600, {WorkerId{1}}, {SessionId{0, 1}});
  w.Tell(ClientClosed{ConnId{1}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, patient);
}

// Ten programs on two workers: all of them run, two at a time.
TEST(GatewayCoreQueue, TenProgramsOnTwoWorkersAllRun) {
  World w;
  w.Join(1);
  w.Join(2);
  std::set<uint64_t> running, done;
  const auto start = [&] {
    for (bool more = true; more;) {
      more = false;
      for (const Action& action : std::vector<Action>(w.actions))
        if (const auto* assign = std::get_if<Assign>(&action)) {
          running.insert(assign->session.lo);
          w.Tell(ExecutorAttached{assign->session, WallTime{}});
          more = true;
          break;
        }
    }
  };
  for (uint64_t conn = 1; conn <= 10; ++conn) {
    w.Open(conn);
    start();
  }
  EXPECT_EQ(running.size(), 2u);
  while (!running.empty()) {
    std::vector<SessionId> alive;
    for (const uint64_t id : running) alive.push_back({0, id});
    w.Pass(60, {WorkerId{1}, WorkerId{2}}, alive);
    const uint64_t first = *running.begin();
    running.erase(first);
    done.insert(first);
    w.Tell(ClientClosed{ConnId{first}});
    EXPECT_TRUE(w.Get<EndClient>()->why.ok()) << first;
    start();
  }
  EXPECT_EQ(done.size(), 10u);
}

// One account's many sessions do not shut another out.
TEST(GatewayCoreQueue, AnAccountThatHasUsedLessGoesFirst) {
  World w;
  w.Join(1);
  w.OpenLive(1);
  for (uint64_t conn = 2; conn <= 6; ++conn) w.Open(conn);
  const SessionId other = w.Open(7, kOther);
  ASSERT_NE(w.Get<Queued>(), nullptr);
  EXPECT_EQ(w.Get<Queued>()->before, 0u);
  w.Pass(10, {WorkerId{1}}, {SessionId{0, 1}});
  w.Tell(ClientClosed{ConnId{1}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, other);
}

TEST(GatewayCoreQueue, PlaceAndExpectedWaitAreToldAsTheyChange) {
  World w;
  w.Join(1);
  w.OpenLive(1);
  w.Open(2);
  EXPECT_EQ(w.Get<Queued>()->before, 0u);
  EXPECT_EQ(w.Get<Queued>()->expected_s, std::nullopt);
  w.Open(3);
  EXPECT_EQ(w.Get<Queued>()->before, 1u);
  w.history.clear();
  w.Pass(5, {WorkerId{1}}, {SessionId{0, 1}});
  for (const Action& action : w.history) EXPECT_FALSE(std::holds_alternative<Queued>(action));
  w.Tell(ClientClosed{ConnId{1}});
  w.history.clear();
  w.Pass(2, {WorkerId{1}}, {SessionId{0, 2}});
  int told = 0;
  for (const Action& action : w.history)
    if (const auto* queued = std::get_if<Queued>(&action)) {
      EXPECT_EQ(queued->conn, ConnId{3});
      EXPECT_EQ(queued->before, 0u);
      ++told;
    }
  EXPECT_EQ(told, 1);
}

TEST(GatewayCoreQueue, AQuotaBoundsWhatAnAccountHolds) {
  CoreOptions options;
  options.devices_per_tenant_max = 1;
  World w(options);
  w.Join(1, 2);
  w.OpenLive(1);
  const SessionId second = w.Open(2);
  ASSERT_NE(w.Get<Queued>(), nullptr);
  EXPECT_EQ(w.Get<Queued>()->reason, WaitReason::kQuota);
  w.Open(3, kOther);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  w.Tell(ClientClosed{ConnId{1}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, second);
}

TEST(GatewayCoreQueue, AGangIsPlacedTogether) {
  World w;
  w.Join(1, 2);
  const auto join = [&](uint64_t conn) {
    ClientOpen open{ConnId{conn}, kTenant, 1, SessionId{0, conn}, Token{1, conn}, WallTime{}};
    open.gang = "sweep";
    open.gang_size = 2;
    w.Tell(open);
  };
  join(1);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Queued>()->reason, WaitReason::kGang);
  join(2);
  EXPECT_EQ(std::count_if(w.actions.begin(), w.actions.end(),
                          [](const Action& a) { return std::holds_alternative<Assign>(a); }),
            2);
}

TEST(GatewayCoreQueue, MembersOfAGangAreAlikeAndWithinTheQuota) {
  CoreOptions options;
  options.devices_per_tenant_max = 4;
  World w(options);
  w.Join(1, 4);
  const auto join = [&](uint64_t conn, uint32_t devices, uint32_t size) {
    ClientOpen open{ConnId{conn}, kTenant, 1, SessionId{0, conn}, Token{1, conn}, WallTime{}};
    open.gang = "sweep";
    open.gang_size = size;
    open.devices = devices;
    w.Tell(open);
  };
  join(1, 1, 2);
  join(2, 2, 2);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kInvalidArgument);
  join(3, 1, 3);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kInvalidArgument);
  join(4, 3, 2);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kResourceExhausted);
}

// Seven of eight devices stood idle for as long as a session ran on the eighth.
TEST(GatewayCoreQueue, WhatIsReserved_GoesToTheNextAfterAWhile) {
  World w;
  WorkerJoined joined{WorkerId{1}, "w#", std::vector<DeviceSlot>(8), "node", {}};
  joined.serves_groups = true;
  w.Tell(joined);
  const SessionId first = w.OpenLive(1);
  w.core.RememberUse(kOther, 36'000, MonoTime{});
  w.Tell(ClientOpen{ConnId{2}, TenantId{9}, 8, SessionId{0, 2}, Token{1, 2}, WallTime{}});
  const SessionId next = w.Open(3, kOther);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  w.history.clear();
  w.Pass(302, {WorkerId{1}}, {first});
  const auto assigned = std::find_if(w.history.begin(), w.history.end(), [](const Action& action) {
    return std::holds_alternative<Assign>(action);
  });
  ASSERT_NE(assigned, w.history.end());
  EXPECT_EQ(std::get<Assign>(*assigned).session, next);
}

// Its worker is stopped: nothing is lost, nothing counts as a loss, and what is repeated is free.
TEST(GatewayCoreQueue, AWorkerThatDrainsHandsItsSessionsOver) {
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  World w(options);
  const auto join = [&](uint64_t worker) {
    WorkerJoined joined{WorkerId{worker}, "w#", std::vector<DeviceSlot>(1), "node", {}};
    joined.worker_identity += std::to_string(worker);
    joined.snapshots_when_asked = true;
    w.Tell(joined);
  };
  join(1);
  const SessionId id = w.OpenLive(1);
  join(2);
  w.Tell(SessionProgress{id, true, 9});
  w.Tell(WorkerDraining{WorkerId{1}});
  EXPECT_NE(w.Get<RequestSnapshot>(), nullptr);
  EXPECT_EQ(w.Get<Assign>(), nullptr);  // it goes on until the snapshot is kept
  w.Tell(SnapshotKept{id, "root", 8});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
  ASSERT_NE(w.Get<EndExecutor>(), nullptr);
  EXPECT_EQ(w.Get<EndExecutor>()->worker, WorkerId{1});
  EXPECT_NE(w.Get<Moving>(), nullptr);
  const int64_t before_ms = w.core.BillOf(id).ms;
  w.Tell(ExecutorAttached{id, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "root");
  w.After(0.2, SessionProgress{id, true, 8});  // item 9 again
  EXPECT_EQ(w.core.BillOf(id).ms, before_ms);
}

TEST(GatewayCoreQueue, AWorkerThatDrainsKeepsWhatCannotGoOnElsewhere) {
  World w;  // no snapshots
  w.Join(1);
  w.OpenLive(1);
  w.Join(2);
  w.Tell(WorkerDraining{WorkerId{1}});
  EXPECT_EQ(w.Get<EndExecutor>(), nullptr);
  w.Open(2);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
}

}  // namespace
}  // namespace outboard::gateway
