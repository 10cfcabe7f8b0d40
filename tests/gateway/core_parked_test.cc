// Parked sessions and their worker's memory (G13 of core.cc): what is parked is asked for a
// snapshot, and goes to disk before its memory is given to the next session.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/gateway/core_world.h"

namespace outboard::gateway {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;
constexpr double kWait_s = 5;  // CoreOptions::snapshot_wait_ns

// Workers of some devices with a GiB each, whose sessions can be moved.
struct ParkedWorld : test::World {
  ParkedWorld() : World({.snapshot_ns = 60 * kSecondNs}) { JoinWithMemory(1); }

  void JoinWithMemory(uint64_t worker, uint32_t devices = 1, std::vector<HeldExecutor> held = {},
                      bool snapshots_when_asked = true) {
    WorkerJoined event{WorkerId{worker}, "w#",
                       std::vector<DeviceSlot>(devices, DeviceSlot{.memory_bytes = kGib}),
                       "node" + std::to_string(worker % 10), std::move(held)};
    event.snapshots_when_asked = snapshots_when_asked;
    Tell(event);
  }
  // Parks the session of `conn`, which has applied `done` items.
  SessionId OpenAndPark(uint64_t conn, uint64_t done, uint64_t memory_bytes = kGib / 2,
                        uint64_t worker = 1) {
    const SessionId id = OpenLive(conn);
    Tell(WorkerHeartbeat{WorkerId{worker}, {id}, {memory_bytes}});
    Tell(SessionProgress{id, false, done});
    Tell(ClientDenied{ConnId{conn}, absl::UnauthenticatedError("revoked")});
    After(0.2);
    EXPECT_TRUE(core.HasSeat(id));
    return id;
  }
  bool IsAsked(const SessionId& id) const {
    return std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
      const auto* const request = std::get_if<RequestSnapshot>(&action);
      return request != nullptr && request->session == id;
    });
  }
  // Whether its end was told, and before anybody was placed.
  bool IsStoredFirst(const SessionId& id) const {
    size_t stored = actions.size(), placed = actions.size();
    for (size_t i = 0; i < actions.size(); ++i) {
      if (const auto* const put = std::get_if<Stored>(&actions[i]);
          put != nullptr && put->session == id)
        stored = i;
      if (std::holds_alternative<Assign>(actions[i])) placed = std::min(placed, i);
    }
    return stored < actions.size() && stored < placed && !core.HasSeat(id);
  }
};

TEST(GatewayCoreParked, G13WhatIsNotSavedIsAskedForASnapshotAsItIsParked) {
  ParkedWorld w;
  const SessionId id = w.OpenAndPark(1, 7);
  EXPECT_TRUE(w.IsAsked(id));
  w.After(1);
  EXPECT_FALSE(w.IsAsked(id)) << "once";
}

TEST(GatewayCoreParked, WhatIsSavedAlreadyOrHasNothingIsNotAsked) {
  ParkedWorld w;
  EXPECT_FALSE(w.IsAsked(w.OpenAndPark(1, 0)));
  w.Tell(ClientOpen{ConnId{2}, test::kTenant, 1, {0, 2}, Token{1, 2}, WallTime{}});
  w.Tell(ExecutorAttached{{0, 2}, WallTime{}});
  w.Tell(SessionProgress{{0, 2}, false, 9});
  w.Tell(SnapshotKept{{0, 2}, "root", 9});
  w.Tell(ClientDenied{ConnId{2}, absl::UnauthenticatedError("revoked")});
  w.After(0.2);
  EXPECT_FALSE(w.IsAsked({0, 2}));
}

TEST(GatewayCoreParked, G13TheNextWaitsForTheSnapshotAndNotLonger) {
  ParkedWorld w;
  const SessionId parked = w.OpenAndPark(1, 7);
  w.Open(2);
  EXPECT_NE(w.Get<Queued>(), nullptr);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  w.After(1);
  EXPECT_TRUE(w.core.HasSeat(parked));
  w.Tell(SnapshotKept{parked, "early", 5});
  EXPECT_TRUE(w.core.HasSeat(parked)) << "two items are missing in it";
  w.Tell(SnapshotKept{parked, "root", 7});
  EXPECT_TRUE(w.IsStoredFirst(parked));
  EXPECT_TRUE(w.Get<Stored>()->is_saved);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, (SessionId{0, 2}));
}

TEST(GatewayCoreParked, G13WithoutASnapshotTheNextIsPlacedAfterItsTime) {
  ParkedWorld w;
  const SessionId parked = w.OpenAndPark(1, 7);
  w.Open(2);
  w.Pass(kWait_s - 1, {WorkerId{1}});
  EXPECT_TRUE(w.core.HasSeat(parked));
  w.After(1.1);
  EXPECT_TRUE(w.IsStoredFirst(parked));
  EXPECT_FALSE(w.Get<Stored>()->is_saved);
  EXPECT_NE(w.Get<Assign>(), nullptr);
}

TEST(GatewayCoreParked, TheTimeCountsFromTheParking) {
  ParkedWorld w;
  const SessionId parked = w.OpenAndPark(1, 7);
  w.Pass(kWait_s + 1, {WorkerId{1}});
  w.Open(2);
  EXPECT_TRUE(w.IsStoredFirst(parked));
}

TEST(GatewayCoreParked, TheSessionThatWaitsDoesNotWaitWhereThereIsRoomElsewhere) {
  ParkedWorld w;
  const SessionId parked = w.OpenAndPark(1, 7);
  w.JoinWithMemory(2);
  w.Open(2);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
  EXPECT_TRUE(w.core.HasSeat(parked));
}

TEST(GatewayCoreParked, AParkedSessionThatFitsIsNotWaitedFor) {
  ParkedWorld w;
  const SessionId parked = w.OpenAndPark(1, 7, kGib / 16);
  w.OpenLive(2);
  EXPECT_TRUE(w.core.HasSeat(parked));
}

TEST(GatewayCoreParked, AWorkerThatCannotBeAskedIsNotWaitedFor) {
  ParkedWorld w;
  w.Tell(WorkerDraining{WorkerId{1}});
  w.JoinWithMemory(2, 1, {}, /*snapshots_when_asked=*/false);
  const SessionId parked = w.OpenAndPark(1, 7, kGib / 2, /*worker=*/2);
  EXPECT_FALSE(w.IsAsked(parked));
  w.Open(2);
  EXPECT_TRUE(w.IsStoredFirst(parked));
}

// The one that can go at once makes the room, and the other keeps its executor.
TEST(GatewayCoreParked, OfTwoTheOneThatIsSavedGoes) {
  ParkedWorld w;
  w.JoinWithMemory(2, 2);
  w.Tell(WorkerDraining{WorkerId{1}});
  const SessionId unsaved = w.OpenAndPark(1, 7, kGib / 4, 2);
  const SessionId saved = w.OpenAndPark(2, 3, kGib / 4, 2);
  w.Tell(SnapshotKept{saved, "root", 3});
  w.OpenLive(3);
  w.Open(4);
  EXPECT_TRUE(w.IsStoredFirst(saved));
  EXPECT_TRUE(w.core.HasSeat(unsaved));
}

// Two in one worker's memory would be more than it has.
TEST(GatewayCoreParked, WhatHasNoSnapshotsEndsWhenItsMemoryIsNeeded) {
  test::World w;
  w.Tell(WorkerJoined{WorkerId{1}, "w#", {DeviceSlot{.memory_bytes = kGib}}, "node", {}});
  const SessionId id = w.OpenLive(1);
  w.Tell(WorkerHeartbeat{WorkerId{1}, {id}, {kGib / 2}});
  w.Tell(ClientGone{ConnId{1}});
  w.Pass(12, {WorkerId{1}}, {id});
  EXPECT_TRUE(w.core.HasSeat(id)) << "nobody needs it";
  w.Open(2);
  EXPECT_NE(w.Get<Assign>(), nullptr);
  EXPECT_FALSE(w.core.Has(id));
}

// Whoever holds a key that was revoked comes back no more, and would pay for a quarter of an hour.
TEST(GatewayCoreParked, ADeniedSessionWithoutSnapshotsGivesAnExclusiveDeviceBack) {
  test::World w;
  WorkerJoined joined{WorkerId{1}, "w#", {DeviceSlot{.memory_bytes = kGib}}, "node", {}};
  joined.exclusive = true;
  w.Tell(joined);
  const SessionId id = w.OpenLive(1);
  w.Tell(ClientDenied{ConnId{1}, absl::UnauthenticatedError("revoked")});
  w.Pass(2, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_FALSE(w.core.Has(id));
}

TEST(GatewayCoreParked, AClientThatComesBackInTimeFindsItsExecutor) {
  ParkedWorld w;
  const SessionId parked = w.OpenAndPark(1, 7);
  w.Open(2);
  w.Resume(3, 1);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->session, parked);
  w.Tell(SnapshotKept{parked, "root", 7});
  EXPECT_TRUE(w.core.HasSeat(parked));
  EXPECT_EQ(w.Get<Assign>(), nullptr) << "the device is in use";
}

// Of an executor that outlived the gateway nobody knows what it has applied.
TEST(GatewayCoreParked, G13AnAdoptedExecutorIsAskedOnceItAttaches) {
  ParkedWorld w;
  SessionRestored restored;
  restored.session = {0, 1};
  restored.tenant = test::kTenant;
  restored.resume_hash = Token{1, 1};
  restored.epoch = 1;
  restored.worker_identity = "node2";
  restored.recoverable = true;
  restored.snapshot_seq = 4;
  w.Tell(restored);
  w.Tell(WorkerDraining{WorkerId{1}});
  w.JoinWithMemory(2, 1, {{restored.session, {0}, 1}});
  w.Tell(WorkerHeartbeat{WorkerId{2}, {restored.session}, {kGib / 2}});
  w.Open(2);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  EXPECT_FALSE(w.IsAsked(restored.session)) << "there is nobody yet";
  w.Tell(ExecutorAttached{restored.session, WallTime{}});
  EXPECT_TRUE(w.IsAsked(restored.session));
  w.Tell(SnapshotKept{restored.session, "root", 6});
  EXPECT_EQ(w.Get<Assign>(), nullptr) << "what it has applied since is not known";
  w.Tell(SessionProgress{restored.session, false, 6});
  w.After(0.2);
  EXPECT_TRUE(w.IsStoredFirst(restored.session));
}

// Its memory is known with the first heartbeat only.
TEST(GatewayCoreParked, AnAdoptedSessionGoesWhenItsMemoryIsKnown) {
  ParkedWorld w;
  const SessionId parked = w.OpenAndPark(1, 0, /*memory_bytes=*/0);
  const SessionId next = w.OpenLive(2);
  EXPECT_TRUE(w.core.HasSeat(parked));
  w.Tell(WorkerHeartbeat{WorkerId{1}, {parked, next}, {kGib / 2, kGib / 2}});
  EXPECT_FALSE(w.core.HasSeat(parked));
  EXPECT_TRUE(w.core.HasSeat(next));
}

}  // namespace
}  // namespace outboard::gateway
