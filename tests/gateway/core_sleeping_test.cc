// A session that is connected and has no work gives its device back, and comes back by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/gateway/core_world.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::World;

CoreOptions Snapshots() {
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  return options;
}

struct SleepingWorld : World {
  explicit SleepingWorld(CoreOptions options = Snapshots()) : World(options, /*sleeps=*/true) {}

  void JoinOne(uint64_t worker, bool exclusive = false) {
    WorkerJoined joined{WorkerId{worker}, "node#", {{"cpu", uint64_t{8} << 30}}, "node", {}};
    joined.exclusive = exclusive;
    joined.snapshots_when_asked = true;
    Tell(joined);
  }
  // Time in which the session works, or does not, and its worker beats.
  void Work(const SessionId& id, double seconds, uint64_t worker = 1) {
    for (double t = 0; t < seconds; t += 0.2) {
      now_ns += kSecondNs / 5;
      Tell(SessionProgress{id, false, ++done});
      Tell(WorkerHeartbeat{{worker}, {id}});
      Tell(Tick{});
    }
  }
  void Idle(const SessionId& id, double seconds, uint64_t worker = 1) {
    for (double t = 0; t < seconds; t += 0.2) {
      now_ns += kSecondNs / 5;
      Tell(SessionProgress{id, false, done});
      Tell(WorkerHeartbeat{{worker}, {id}});
      Tell(Tick{});
    }
  }
  template <typename T>
  int Count() const {
    return static_cast<int>(std::count_if(history.begin(), history.end(), [](const Action& a) {
      return std::holds_alternative<T>(a);
    }));
  }
  uint64_t done = 0;
};

TEST(GatewayCoreSleeping, NobodyIsBilledForMoreIdleTimeThanIsShown) {
  SleepingWorld w;
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  w.Work(id, 10);
  const int64_t worked_ms = w.core.BillOf(id).ms;
  w.Idle(id, 3600);
  EXPECT_LE(w.core.BillOf(id).ms - worked_ms, 60'000);
  EXPECT_GT(w.core.BillOf(id).ms - worked_ms, 58'000);
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.core.session_count(), 1u);
}

TEST(GatewayCoreSleeping, ItIsAnnouncedAtHalfTheTimeOnce) {
  SleepingWorld w;
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  w.Work(id, 1);
  w.Idle(id, 28);
  EXPECT_EQ(w.Count<IdleSoon>(), 0);
  w.Idle(id, 3);
  ASSERT_EQ(w.Count<IdleSoon>(), 1);
  w.Idle(id, 25);
  EXPECT_EQ(w.Count<IdleSoon>(), 1);
  EXPECT_EQ(w.Count<SleepBegins>(), 0);
  w.Work(id, 1);  // in time: it begins anew
  w.Idle(id, 59);
  EXPECT_EQ(w.Count<SleepBegins>(), 0);
  EXPECT_EQ(w.Count<IdleSoon>(), 2);
  w.Idle(id, 2);
  EXPECT_EQ(w.Count<SleepBegins>(), 1);
}

TEST(GatewayCoreSleeping, TheNextItemTakesADeviceAgainInANewEpoch) {
  SleepingWorld w;
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  w.Idle(id, 61);
  ASSERT_EQ(w.Count<SleepBegins>(), 1);
  const int64_t billed_ms = w.core.BillOf(id).ms;
  w.Tell(ClientActs{ConnId{1}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);
  EXPECT_EQ(w.Get<Assign>(), nullptr);  // its executor lives
  w.Work(id, 5);
  EXPECT_NEAR(static_cast<double>(w.core.BillOf(id).ms - billed_ms), 5000, 300);
}

TEST(GatewayCoreSleeping, OthersRunMeanwhileAndItWaitsForThem) {
  SleepingWorld w;
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  const SessionId other = w.Open(2);
  w.Idle(id, 61);
  EXPECT_TRUE(w.core.Awaits(other));
  w.Tell(ExecutorAttached{other, WallTime{}});
  w.Tell(ClientActs{ConnId{1}});
  ASSERT_NE(w.Get<Queued>(), nullptr);
  EXPECT_EQ(w.Get<Queued>()->conn, ConnId{1});
  w.Tell(ClientClosed{ConnId{2}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->session, id);
}

TEST(GatewayCoreSleeping, WorkThatCameAtThatMomentWakesIt) {
  SleepingWorld w;
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  w.Idle(id, 61);
  ASSERT_EQ(w.Count<SleepBegins>(), 1);
  w.Tell(SessionProgress{id, /*busy=*/true, w.done});
  EXPECT_NE(w.Get<Live>(), nullptr);
}

TEST(GatewayCoreSleeping, AnExclusiveDeviceIsGivenBackOnceTheStateIsSaved) {
  SleepingWorld w;
  w.JoinOne(1, /*exclusive=*/true);
  const SessionId id = w.OpenLive(1);
  w.Work(id, 1);
  w.Idle(id, 60);
  EXPECT_EQ(w.Count<RequestSnapshot>(), 1);
  EXPECT_EQ(w.core.devices_busy(), 1u);
  w.Tell(SnapshotKept{id, "root", w.done});
  w.Idle(id, 1);
  EXPECT_EQ(w.Count<SleepBegins>(), 1);
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_FALSE(w.core.HasSeat(id));
  w.Tell(ClientActs{ConnId{1}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "root");
}

// Without snapshots its values would be lost: it keeps its device, and pays.
TEST(GatewayCoreSleeping, AnExclusiveDeviceWithoutSnapshotsIsKept) {
  SleepingWorld w{CoreOptions{}};
  w.JoinOne(1, /*exclusive=*/true);
  const SessionId id = w.OpenLive(1);
  w.Idle(id, 300);
  EXPECT_EQ(w.Count<SleepBegins>(), 0);
  EXPECT_EQ(w.core.devices_busy(), 1u);
}

// It could never go to disk: nobody would pay for the memory that it holds, for as long as it
// slept.
TEST(GatewayCoreSleeping, WhatHasNoSnapshotsKeepsItsDevice) {
  SleepingWorld w{CoreOptions{}};
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  w.Idle(id, 300);
  EXPECT_EQ(w.Count<SleepBegins>(), 0);
  EXPECT_EQ(w.core.devices_busy(), 1u);
}

TEST(GatewayCoreSleeping, ParkedStateGoesToDiskAfterTenMinutes) {
  SleepingWorld w;
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  w.Work(id, 1);
  w.Idle(id, 61);
  w.Tell(SnapshotKept{id, "root", w.done});
  w.Idle(id, 598);
  EXPECT_TRUE(w.core.HasSeat(id));
  w.Idle(id, 4);
  EXPECT_FALSE(w.core.HasSeat(id));
  w.Tell(ClientActs{ConnId{1}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
}

TEST(GatewayCoreSleeping, ALostWorkerDoesNotWakeIt) {
  SleepingWorld w;
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  w.Idle(id, 61);
  w.Tell(WorkerJoined{WorkerId{2}, "other#", {{"cpu", uint64_t{8} << 30}}, "other", {}});
  w.history.clear();
  w.Tell(WorkerGone{WorkerId{1}});
  w.Pass(5, {WorkerId{2}});
  EXPECT_EQ(w.Count<Assign>(), 0);
  EXPECT_EQ(w.Count<Moving>(), 0);
  w.Tell(ClientActs{ConnId{1}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
}

TEST(GatewayCoreSleeping, ItsClientMayLeaveComeBackOrClose) {
  for (const std::string what : {"leaves", "closes", "resumes", "is denied"}) {
    SleepingWorld w;
    w.JoinOne(1);
    const SessionId id = w.OpenLive(1);
    w.Idle(id, 61);
    if (what == "leaves") w.Tell(ClientGone{ConnId{1}});
    if (what == "closes") w.Tell(ClientClosed{ConnId{1}});
    if (what == "is denied") w.Tell(ClientDenied{ConnId{1}, absl::UnauthenticatedError("revoked")});
    if (what == "resumes") w.Resume(2, 1);
    EXPECT_EQ(w.core.session_count(), what == "closes" ? 0u : 1u) << what;
    EXPECT_EQ(w.Get<Live>() != nullptr, what == "resumes") << what;
    w.Tell(ClientActs{ConnId{1}});  // of a connection that is gone: nothing
    if (what != "resumes") EXPECT_EQ(w.Get<Live>(), nullptr) << what;
  }
}

TEST(GatewayCoreSleeping, NeverWhereItIsTurnedOff) {
  CoreOptions options = Snapshots();
  options.sleep_ns = 0;
  SleepingWorld w{options};
  w.JoinOne(1);
  const SessionId id = w.OpenLive(1);
  w.Idle(id, 600);
  EXPECT_EQ(w.core.devices_busy(), 1u);
}

}  // namespace
}  // namespace outboard::gateway
