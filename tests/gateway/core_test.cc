// GatewayCore with a virtual clock and no gRPC. G1 to G10 are the invariants in core.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "tests/gateway/core_world.h"
#include "tests/support/documented.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::World;

constexpr TenantId kOther{8};

TenantId TenantOf(uint64_t session) { return session % 3 == 0 ? kOther : kTenant; }

TEST(GatewayCore, OpenAssignAttachLiveClose) {
  World w;
  w.Join(1);
  SessionId id = w.Open(10);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{1});
  EXPECT_TRUE(w.core.Awaits(id));
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 1u);
  EXPECT_FALSE(w.core.Awaits(id));  // once
  w.After(2.5, ClientClosed{ConnId{10}});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_TRUE(w.Get<EndClient>()->why.ok());
  EXPECT_EQ(w.Get<EndClient>()->bill.ms, 2500);
  EXPECT_NE(w.Get<EndExecutor>(), nullptr);
  EXPECT_NE(w.Get<Forget>(), nullptr);
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.posted_ms, 2500);
}

TEST(GatewayCore, G3NothingIsBilledBeforeTheExecutorIsThere) {
  World w;
  w.Join(1);
  SessionId id = w.Open(1);
  w.Pass(4, {WorkerId{1}});
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.After(1.2, ClientClosed{ConnId{1}});
  EXPECT_EQ(w.Get<EndClient>()->bill.ms, 1200);
}

TEST(GatewayCore, ASecondCostsWhatItsSlotCosts) {
  World w;
  const MicroUsd cheap{3'600}, dear{36'000};  // 1 and 10 micro-dollars a second
  w.Tell(WorkerJoined{
      WorkerId{1}, "node1#", {{"small", 1 << 30, cheap}, {"large", 0, dear}}, "node1", {}});
  EXPECT_EQ(w.core.devices_total(), 2u);
  for (const auto& [conn, slot, price] : {std::tuple(1, 0u, cheap), std::tuple(2, 1u, dear)}) {
    w.OpenLive(conn);
    const Live& live = *w.Get<Live>();
    EXPECT_EQ(live.seats, (std::vector<Seat>{{WorkerId{1}, {slot}, /*attached=*/{true}}}));
    EXPECT_EQ(live.price_per_hour.value, price.value);
  }
  w.After(4.0, ClientClosed{ConnId{1}});
  EXPECT_EQ(w.Get<EndClient>()->bill.amount.value, 4);
  w.Tell(ClientClosed{ConnId{2}});
  EXPECT_EQ(w.Get<EndClient>()->bill.amount.value, 40);
}

TEST(GatewayCore, QueuesInOrderAndPlacesWhenADeviceIsFree) {
  World w;
  w.Join(1);
  w.OpenLive(1);
  SessionId second = w.Open(2), third = w.Open(3);
  ASSERT_NE(w.Get<Queued>(), nullptr);
  EXPECT_EQ(w.Get<Queued>()->before, 1u);
  w.Tell(ClientClosed{ConnId{1}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, second);
  w.Tell(ClientGone{ConnId{2}});  // gives up while its executor starts
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, third);
}

TEST(GatewayCore, RefusalsByCode) {
  CoreOptions options;
  options.sessions_per_tenant_max = 1;
  World w(options);
  w.Join(1);
  w.OpenLive(2);
  w.Open(3);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kResourceExhausted);
  w.Tell(ClientResume{ConnId{4}, kTenant, Token{9, 9}, {}});
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kNotFound);
  w.core.Drain();
  w.Open(5);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kUnavailable);
}

TEST(GatewayCore, ALostWorkerEndsItsSessionsAndTheMeterStopsAtTheLastNews) {
  for (bool silent : {false, true}) {
    World w;
    w.Join(1);
    SessionId id = w.OpenLive(1);
    w.Pass(3, {WorkerId{1}}, {id});
    if (!silent) w.After(0.9, WorkerGone{WorkerId{1}});
    w.history.clear();
    for (int i = 0; i < 12 && w.Get<EndClient>() == nullptr; ++i) w.After(0.5);
    ASSERT_NE(w.Get<EndClient>(), nullptr);
    EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(w.Get<EndClient>()->why.message().find("worker lost"), std::string::npos);
    EXPECT_EQ(w.Get<EndClient>()->bill.ms, 3000);
    EXPECT_EQ(w.posted_ms, 3000);
    EXPECT_EQ(w.core.worker_count(), 0u);
  }
}

TEST(GatewayCore, AWaitingSessionIsNotPlacedOnTheWorkerThatIsBeingLost) {
  World w;
  w.Join(1);
  w.OpenLive(1);
  w.Open(2);
  w.Tell(WorkerGone{WorkerId{1}});
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  w.Silence(3);
  EXPECT_EQ(w.core.session_count(), 1u);
  w.Join(2);
  EXPECT_NE(w.Get<Assign>(), nullptr);
}

TEST(GatewayCore, AVanishedClientResumesWithItsToken) {
  World w;
  w.Join(1);
  w.OpenLive(1);
  w.Tell(ClientGone{ConnId{1}});
  EXPECT_NE(w.Get<Detach>(), nullptr);
  w.Tell(ClientResume{ConnId{2}, TenantId{8}, Token{1, 1}, {}});  // another tenant's
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kNotFound);
  w.Tell(ClientResume{ConnId{3}, kTenant, Token{1, 1}, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);                        // G6
  w.Tell(ClientResume{ConnId{4}, kTenant, Token{1, 1}, {}});  // before we noticed that 3 broke
  EXPECT_EQ(w.Get<EndClient>()->conn, ConnId{3});
  outboard::test::ExpectAsDocumented("Another stream has resumed the session",
                                     w.Get<EndClient>()->why);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{4});
  w.Tell(ClientGone{ConnId{3}});
  EXPECT_EQ(w.Get<Detach>(), nullptr);
}

TEST(GatewayCore, AnIdleDetachedSessionGivesItsDeviceBackAndTheMeterStands) {
  World w;
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Tell(ClientGone{ConnId{1}});
  w.Pass(11, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.core.session_count(), 1u);
  int64_t billed = w.core.BillOf(id).ms;
  EXPECT_GE(billed, 10);
  w.Pass(60, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.BillOf(id).ms, billed);
  // Somebody else has the device when it comes back: it waits, then goes on where it was.
  w.OpenLive(2);
  w.Tell(ClientResume{ConnId{3}, kTenant, Token{1, 1}, {}});
  EXPECT_NE(w.Get<Queued>(), nullptr);
  w.Tell(ClientClosed{ConnId{2}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->session, id);
  EXPECT_EQ(w.Get<Assign>(), nullptr);  // its executor lives
  w.Pass(2, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.BillOf(id).ms, billed + 2000);
}

TEST(GatewayCore, ABusyDetachedSessionKeepsItsDevice) {
  World w;
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Tell(ClientGone{ConnId{1}});
  for (int i = 0; i < 30; ++i) {
    w.Tell(SessionProgress{id, true});
    w.Pass(1, {WorkerId{1}}, {id});
  }
  EXPECT_EQ(w.core.devices_busy(), 1u);
  w.Tell(SessionProgress{id, false});
  w.Pass(12, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 0u);
}

TEST(GatewayCore, G7TheGraceTimeEnds) {
  World w;
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Tell(ClientGone{ConnId{1}});
  w.Pass(902, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.session_count(), 0u);
}

// ---- parked state, and a worker's memory --------------------------------------------------------

constexpr uint64_t kGib = uint64_t{1} << 30;

// A world with one worker of `devices` devices with a GiB each, whose sessions can be moved.
struct MemoryWorld : World {
  explicit MemoryWorld(uint32_t devices) : World({.snapshot_ns = kSecondNs}) {
    Tell(WorkerJoined{WorkerId{1}, "node1#",
                      std::vector<DeviceSlot>(devices, DeviceSlot{.memory_bytes = kGib}), "node1",
                      {}});
  }
  SessionId OpenAndPark(uint64_t conn, uint64_t memory_bytes, bool recovers = true) {
    const SessionId id{0, conn};
    Tell(ClientOpen{ConnId{conn}, kTenant, 1, id, Token{1, conn}, WallTime{}, recovers});
    Tell(ExecutorAttached{id, WallTime{}});
    Tell(WorkerHeartbeat{WorkerId{1}, {id}, {memory_bytes}});
    Tell(ClientDenied{ConnId{conn}, absl::UnauthenticatedError("revoked")});
    After(0.2);
    EXPECT_EQ(core.devices_busy(), 0u);
    EXPECT_TRUE(core.HasSeat(id));
    return id;
  }
};

TEST(GatewayCore, G8AParkedSessionGoesToDiskBeforeTheNextIsSqueezed) {
  MemoryWorld w(1);
  const SessionId large = w.OpenAndPark(1, kGib / 2);
  const SessionId next = w.Open(2);
  EXPECT_FALSE(w.core.HasSeat(large));
  EXPECT_TRUE(w.core.Has(large));
  ASSERT_NE(w.Get<EndExecutor>(), nullptr);
  EXPECT_EQ(w.Get<EndExecutor>()->session, large);
  // The worker hears of the end before it hears of the next.
  const auto at = [&](auto is) { return std::find_if(w.actions.begin(), w.actions.end(), is); };
  EXPECT_LT(at([](const Action& a) { return std::holds_alternative<EndExecutor>(a); }),
            at([](const Action& a) { return std::holds_alternative<Assign>(a); }));
  // It goes on where it was, in another executor.
  w.Tell(ClientClosed{ConnId{2}, absl::OkStatus()});
  EXPECT_FALSE(w.core.Has(next));
  w.Resume(3, 1);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, large);
  EXPECT_EQ(w.Get<Assign>()->placement, 2u);
  w.Tell(ExecutorAttached{large, WallTime{}});
  EXPECT_NE(w.Get<Live>(), nullptr);
}

TEST(GatewayCore, ParkedSessionsThatFitStay) {
  MemoryWorld w(1);
  const SessionId small = w.OpenAndPark(1, kGib / 16);
  w.OpenLive(2);
  EXPECT_TRUE(w.core.HasSeat(small));
  MemoryWorld two(2);  // the second device is free, and so is its memory
  const SessionId large = two.OpenAndPark(1, kGib / 2);
  two.OpenLive(2);
  EXPECT_TRUE(two.core.HasSeat(large));
  two.OpenLive(3);
  EXPECT_FALSE(two.core.HasSeat(large));
}

TEST(GatewayCore, TheParkedSessionWhoseClientLeftFirstGoesFirst) {
  MemoryWorld w(2);
  const SessionId first = w.OpenAndPark(1, kGib / 2), second = w.OpenAndPark(2, kGib / 8);
  w.OpenLive(3);
  EXPECT_TRUE(w.core.HasSeat(first) && w.core.HasSeat(second));
  w.OpenLive(4);
  EXPECT_FALSE(w.core.HasSeat(first));
  EXPECT_TRUE(w.core.HasSeat(second)) << "a quarter of a GiB is for parked ones";
}

// Its client may never come back, and a worker has no more memory than it has.
TEST(GatewayCore, AParkedSessionThatCannotGoOnElsewhereEndsWhenItsMemoryIsNeeded) {
  MemoryWorld w(2);
  const SessionId old = w.OpenAndPark(1, kGib / 2, /*recovers=*/false);
  w.OpenLive(2);
  EXPECT_TRUE(w.core.HasSeat(old));
  w.OpenLive(3);
  EXPECT_FALSE(w.core.Has(old));
}

// Its key was revoked, say: nothing more is billed, and another key of the account goes on.
TEST(GatewayCore, ADeniedClientsSessionIsParkedAtOnceAndGoesOnForAnother) {
  World w;
  w.Join(1);
  SessionId id = w.OpenLive(1);
  const absl::Status why = absl::UnauthenticatedError("revoked");
  w.Pass(2, {WorkerId{1}}, {id});
  w.Tell(ClientDenied{ConnId{1}, why});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why, why);
  EXPECT_EQ(w.Get<EndClient>()->bill.ms, 2000);
  EXPECT_NE(w.Get<Detach>(), nullptr);
  EXPECT_EQ(w.Get<Forget>(), nullptr);
  w.After(0.2);
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_TRUE(w.core.Has(id));
  w.Resume(2, 1);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);
  // Its device is now kept for as long as that of any other client.
  w.Tell(ClientGone{ConnId{2}});
  w.After(0.2);
  EXPECT_EQ(w.core.devices_busy(), 1u);
}

TEST(GatewayCore, ADeniedClientsSessionGivesItsDeviceBackWhenItsWorkIsDone) {
  World w;
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Tell(SessionProgress{id, true});
  w.Tell(ClientDenied{ConnId{1}, absl::UnauthenticatedError("revoked")});
  w.After(0.2);
  EXPECT_EQ(w.core.devices_busy(), 1u);
  w.Tell(SessionProgress{id, false});
  w.After(0.2);
  EXPECT_EQ(w.core.devices_busy(), 0u);
}

TEST(GatewayCore, ADeniedClientThatOpenedNothingLeavesNothing) {
  World w;
  w.Join(1);
  w.Open(1);
  w.Tell(ClientDenied{ConnId{1}, absl::UnauthenticatedError("revoked")});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_NE(w.Get<Forget>(), nullptr);
  w.Tell(ClientDenied{ConnId{1}, absl::UnauthenticatedError("revoked")});
  EXPECT_TRUE(w.actions.empty());
}

TEST(GatewayCore, ACrashedExecutorEndsItsSessionOnly) {
  World w;
  w.Join(1, 2);
  SessionId first = w.OpenLive(1);
  w.OpenLive(2);
  w.Tell(ExecutorGone{first, absl::UnavailableError("signal 9")});
  EXPECT_EQ(w.Get<EndClient>()->conn, ConnId{1});
  EXPECT_EQ(w.core.session_count(), 1u);
}

TEST(GatewayCore, StopAllBillsAndEndsEverything) {
  World w;
  w.Join(1, 2);
  w.OpenLive(1);
  w.OpenLive(2);
  w.Open(3);
  w.After(4.2, StopAll{});
  EXPECT_EQ(w.core.session_count(), 0u);
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.posted_ms, 8400);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
}

TEST(GatewayCore, G10AWorkerOfOneAccountTakesNoOther) {
  World w;
  w.Join(1, 3, {}, /*one_account=*/true);
  w.OpenLive(1);
  w.OpenLive(2);  // of the same account
  w.Open(3, kOther);
  EXPECT_NE(w.Get<Queued>(), nullptr);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  w.Tell(ClientClosed{ConnId{1}});
  EXPECT_EQ(w.Get<Assign>(), nullptr);  // 2 is still there
  w.Tell(ClientClosed{ConnId{2}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->tenant, kOther);
  w.OpenFor(20, 4);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  w.Pass(20.5, {WorkerId{1}});
  w.After(0.5);
  bool told = false;
  for (const Action& action : w.history)
    if (const auto* const end = std::get_if<EndClient>(&action);
        end != nullptr && end->conn.value == 4)
      told = end->why.message().find("one account at a time") != std::string::npos;
  EXPECT_TRUE(told);
}

TEST(GatewayCore, G10OtherWorkersTakeWhatItDoesNot) {
  World w;
  w.Join(1, 2, {}, /*one_account=*/true);
  w.Join(2, 2);
  w.OpenLive(1);
  w.Open(2, kOther);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
}

// A parked session has given its device back, and its executor lives with all that it knows.
TEST(GatewayCore, G10AParkedSessionKeepsOthersAway) {
  World w;
  w.Join(1, 1, {}, /*one_account=*/true);
  const SessionId id = w.OpenLive(1);
  w.Tell(ClientGone{ConnId{1}});
  w.Pass(12, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 0u);
  w.Open(2, kOther);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  EXPECT_NE(w.Get<Queued>(), nullptr);
  w.OpenLive(3);  // of the same account
}

// Random events; the invariants hold after each (Tell), epochs rise (G6), an ended connection is
// not spoken to again, and what is posted is what the clock allows.
TEST(GatewayCore, RandomWorlds) {
  const char* from_user = std::getenv("SEED");
  uint64_t first = from_user ? std::strtoull(from_user, nullptr, 10) : std::random_device{}();
  for (uint64_t seed = first; seed < first + (from_user ? 1 : 60); ++seed) {
    SCOPED_TRACE("repeat with SEED=" + std::to_string(seed) +
                 " gateway_core_test --gtest_filter=*RandomWorlds");
    std::mt19937_64 random(seed);
    CoreOptions options;
    options.grace_ns = 40 * kSecondNs;
    if (seed % 2 == 0) options.snapshot_ns = 30 * kSecondNs;
    World w(options);
    uint64_t next_conn = 1, next_worker = 1;
    std::set<uint64_t> workers, conns;
    std::set<SessionId> sessions;
    std::map<SessionId, uint64_t> epochs;
    double device_seconds_max = 0;
    auto any = [&](auto& set) {
      return *std::next(set.begin(), static_cast<long>(random() % set.size()));
    };
    for (int i = 0; i < 1500; ++i) {
      double step = static_cast<double>(random() % 1000) / 500;
      device_seconds_max += step * w.core.devices_busy();
      w.now_ns += static_cast<int64_t>(step * 1e9);
      w.history.clear();
      switch (random() % 13) {
        case 0:
          if (workers.size() < 4) {
            std::vector<HeldExecutor> held;
            if (!sessions.empty() && random() % 2 == 0)
              held.push_back({any(sessions), {uint32_t(random() % 2)}, 1});
            workers.insert(next_worker);
            w.Join(next_worker++, 1 + random() % 2, std::move(held), random() % 2 == 0);
          }
          break;
        case 1:
        case 2: {
          uint64_t conn = next_conn++;
          conns.insert(conn);
          sessions.insert(w.Open(conn, TenantOf(conn)));
          break;
        }
        case 3:
          if (!sessions.empty()) {
            SessionId id = any(sessions);
            uint64_t conn = next_conn++;
            conns.insert(conn);
            w.Tell(ClientResume{ConnId{conn}, TenantOf(id.lo), Token{1, id.lo}, {}});
          }
          break;
        case 4:
          if (!conns.empty()) w.Tell(ClientClosed{ConnId{any(conns)}});
          break;
        case 5:
          if (!conns.empty()) {
            uint64_t conn = any(conns);
            if (random() % 4 == 0) {
              w.Tell(ClientDenied{ConnId{conn}, absl::UnauthenticatedError("revoked")});
            } else {
              conns.erase(conn);
              w.Tell(ClientGone{ConnId{conn}});
            }
          }
          break;
        case 6:
        case 7:
          if (!sessions.empty()) w.Tell(ExecutorAttached{any(sessions), {}});
          break;
        case 8:
          if (!sessions.empty() && random() % 4 == 0)
            w.Tell(ExecutorGone{any(sessions), absl::OkStatus(), random() % 2 == 0, random() % 3});
          break;
        case 9:
          if (!workers.empty() && random() % 8 == 0) {
            uint64_t worker = any(workers);
            workers.erase(worker);
            w.Tell(WorkerGone{WorkerId{worker}});
          }
          break;
        case 10:
          if (!sessions.empty()) w.Tell(SessionProgress{any(sessions), random() % 2 == 0});
          break;
        default:
          for (uint64_t worker : workers) {
            w.Tell(WorkerHeartbeat{WorkerId{worker}, {sessions.begin(), sessions.end()}});
          }
          w.Tell(Tick{});
      }
      if (::testing::Test::HasFatalFailure()) return;
      for (const Action& action : w.history) {
        if (const auto* live = std::get_if<Live>(&action)) {
          ASSERT_GT(live->epoch, epochs[live->session]);
          epochs[live->session] = live->epoch;
        }
        if (const auto* end = std::get_if<EndClient>(&action)) {
          ASSERT_EQ(conns.erase(end->conn.value), 1u);
        }
      }
    }
    w.Tell(StopAll{});
    EXPECT_EQ(w.core.session_count(), 0u);
    EXPECT_LE(static_cast<double>(w.posted_ms) / 1e3, device_seconds_max + 1e-6);
  }
}

}  // namespace
}  // namespace outboard::gateway
