// Sessions on several devices in the core: all or none of them, together, and billed for each.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gateway/core_world.h"
#include "tests/support/documented.h"

namespace outboard::gateway {
namespace {

constexpr MicroUsd kPrice{3'600'000};  // 1 micro-USD a millisecond

struct GroupWorld : test::World {
  GroupWorld() : World({.price_per_hour = kPrice, .snapshot_ns = kSecondNs}) {}

  void JoinOf(uint64_t worker, uint32_t devices, std::vector<HeldExecutor> held = {},
              bool serves_groups = true, bool spans = false,
              const std::string& device_class = "", bool groups_recover = false,
              bool has_collectives = true) {
    Tell(WorkerJoined{
        .worker = WorkerId{worker},
        .name = "box#" + std::to_string(worker),
        .devices = std::vector<DeviceSlot>(
            devices, DeviceSlot{.hardware_class = device_class, .price_per_hour = kPrice}),
        .worker_identity = "node" + std::to_string(worker % 10),
        .held = std::move(held),
        .snapshots_when_asked = true,
        .serves_groups = serves_groups,
        .has_collectives = has_collectives,
        .groups_recover = groups_recover,
        .spans = spans});
  }
  void JoinSpanning(uint64_t worker, uint32_t devices, const std::string& device_class = "") {
    JoinOf(worker, devices, {}, /*serves_groups=*/true, /*spans=*/true, device_class);
  }
  // Whose groups go on elsewhere.
  void JoinRecovering(uint64_t worker, uint32_t devices, bool has_collectives = true) {
    JoinOf(worker, devices, {}, /*serves_groups=*/true, /*spans=*/false, "",
           /*groups_recover=*/true, has_collectives);
  }
  template <typename T>
  std::vector<T> All() const {
    std::vector<T> all;
    for (const Action& action : actions)
      if (const T* found = std::get_if<T>(&action)) all.push_back(*found);
    return all;
  }
  SessionId OpenOn(uint64_t conn, uint32_t devices) {
    const SessionId id{0, conn};
    Tell(ClientOpen{.conn = ConnId{conn},
                    .tenant = test::kTenant,
                    .devices = devices,
                    .session = id,
                    .resume_hash = Token{1, conn},
                    .mesh = {devices}});
    return id;
  }
  void AttachAll(const SessionId& id, uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) Tell(ExecutorAttached{id, {}, rank});
  }
};

TEST(CoreGroups, AGroup_GetsADeviceForEachRankOfOneWorker) {
  GroupWorld w;
  w.JoinOf(1, 1);
  w.JoinOf(2, 3);
  w.OpenOn(1, 3);
  const Assign* const assign = w.Get<Assign>();
  ASSERT_NE(assign, nullptr);
  EXPECT_EQ(assign->worker.value, 2u);
  EXPECT_EQ(assign->devices, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(assign->mesh, std::vector<uint32_t>{3});
}

TEST(CoreGroups, AGroup_ThatDoesNotFitNowHoldsNothing) {
  GroupWorld w;
  w.JoinOf(1, 3);
  const SessionId one = w.OpenOn(1, 1);
  w.OpenOn(2, 3);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  EXPECT_NE(w.Get<Queued>(), nullptr);
  EXPECT_EQ(w.core.devices_busy(), 1u);
  w.AttachAll(one, 1);
  w.Tell(ClientClosed{ConnId{1}, {}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->devices.size(), 3u);
}

TEST(CoreGroups, AGroup_ThatFitsNowhereIsRefusedAtOnce) {
  for (const auto& [devices, text] :
       {std::pair(2u, "devices = 3: a session has at most 2 here, all of one class"),
        std::pair(1u, "devices = 3: a session has at most 1 here")}) {
    GroupWorld w;
    w.JoinOf(1, devices);
    w.OpenOn(1, 3);
    ASSERT_NE(w.Get<EndClient>(), nullptr);
    EXPECT_EQ(w.Get<EndClient>()->why, absl::ResourceExhaustedError(text));
  }
}

TEST(CoreGroups, AGroup_GoesLiveWhenAllHaveAttached) {
  GroupWorld w;
  w.JoinOf(1, 2);
  const SessionId id = w.OpenOn(1, 2);
  w.Tell(ExecutorAttached{id, {}, 1});
  EXPECT_EQ(w.Get<Live>(), nullptr);
  EXPECT_FALSE(w.core.Awaits(id, 1));
  EXPECT_TRUE(w.core.Awaits(id, 0));
  EXPECT_FALSE(w.core.Awaits(id, 2)) << "there is no such rank";
  w.Tell(ExecutorAttached{id, {}, 0});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->price_per_hour, kPrice) << "of each";
  EXPECT_FALSE(w.Get<Live>()->recoverable);
}

TEST(CoreGroups, AGroup_IsBilledForEachDevice) {
  GroupWorld w;
  w.JoinOf(1, 2);
  const SessionId id = w.OpenOn(1, 2);
  w.AttachAll(id, 2);
  w.Pass(4, {WorkerId{1}}, {id});
  w.Tell(ClientClosed{ConnId{1}, {}});
  EXPECT_EQ(w.posted_ms, 2 * 4000);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->bill.amount.value, 2 * 4000);
}

TEST(CoreGroups, AWorkerFromBefore_GetsNoGroup) {
  GroupWorld w;
  w.JoinOf(1, 4, {}, /*serves_groups=*/false);
  w.OpenOn(1, 2);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  w.OpenOn(2, 1);
  EXPECT_NE(w.Get<Assign>(), nullptr);
}

struct SavedGroup : GroupWorld {
  SavedGroup() {
    JoinRecovering(1, 2);
    id = OpenOn(1, 2);
    AttachAll(id, 2);
    EXPECT_TRUE(Get<Live>()->recoverable);
    Tell(SnapshotKept{id, "roots", 5});
    Tell(SessionProgress{id, true, 8});
  }
  void Lose(uint32_t rank, uint64_t placement = 1) {
    Tell(ExecutorGone{.session = id,
                      .why = absl::UnavailableError("killed by signal 9"),
                      .placement = placement,
                      .rank = rank});
  }
  SessionId id;
};

TEST(CoreGroups, ALostRank_MovesAllToANewPlacementWithTheLastSnapshot) {
  SavedGroup w;
  w.Lose(1);
  EXPECT_NE(w.Get<EndExecutor>(), nullptr) << "of the others";
  ASSERT_NE(w.Get<Moving>(), nullptr);
  EXPECT_NE(w.Get<Moving>()->text.find("rank 1 of 2"), std::string::npos) << w.Get<Moving>()->text;
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->placement, 2u);
  EXPECT_EQ(w.Get<Assign>()->devices.size(), 2u);
  EXPECT_EQ(w.Get<Assign>()->snapshot_seq, 5u);
  EXPECT_TRUE(w.core.Awaits(w.id, 0) && w.core.Awaits(w.id, 1));
  w.AttachAll(w.id, 2);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "roots");
  EXPECT_EQ(w.Get<Live>()->snapshot_seq, 5u);
}

TEST(CoreGroups, G9TheEndOfAReplacedRank_IsNotThatOfItsSuccessor) {
  SavedGroup w;
  w.Lose(1);
  w.AttachAll(w.id, 2);
  w.Lose(0, /*placement=*/1);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>(), nullptr);
  w.Lose(0, /*placement=*/2);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->placement, 3u);
}

TEST(CoreGroups, AGroupThatHoldsParts_GoesOnWhereOthersDo) {
  SavedGroup w;
  w.JoinRecovering(3, 2, /*has_collectives=*/false);
  w.JoinOf(4, 2);
  w.Tell(WorkerSetAside{WorkerId{1}});
  EXPECT_EQ(w.Get<Assign>(), nullptr) << "these would take a part for the whole, or save nothing";
  w.JoinRecovering(5, 2);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker.value, 5u);
}

TEST(CoreGroups, AClientThatKeepsNothing_HearsOfTheLoss) {
  GroupWorld w;
  w.JoinRecovering(1, 2);
  const SessionId id{0, 1};
  w.Tell(ClientOpen{.conn = ConnId{1},
                    .tenant = test::kTenant,
                    .devices = 2,
                    .session = id,
                    .resume_hash = Token{1, 1},
                    .recovers = false});
  w.AttachAll(id, 2);
  EXPECT_FALSE(w.Get<Live>()->recoverable);
  w.Tell(ExecutorGone{.session = id, .why = absl::UnavailableError("killed"), .rank = 1});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kUnavailable);
}

TEST(CoreGroups, ALostRank_EndsTheGroupAndIsNamed) {
  GroupWorld w;
  w.JoinOf(1, 2);
  const SessionId id = w.OpenOn(1, 2);
  w.AttachAll(id, 2);
  w.Tell(
      ExecutorGone{.session = id, .why = absl::UnavailableError("killed by signal 9"), .rank = 1});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  const absl::Status why = w.Get<EndClient>()->why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(why.message().find("rank 1 of 2 (device 1 of box#1): killed by signal 9"),
            std::string::npos)
      << why;
  EXPECT_NE(w.Get<EndExecutor>(), nullptr) << "the others have to end";
  EXPECT_EQ(w.core.devices_busy(), 0u);
}

TEST(CoreGroups, ARankThatDoesNotStart_MovesAll) {
  GroupWorld w;
  w.JoinOf(1, 2);
  w.JoinOf(2, 2);
  const SessionId id = w.OpenOn(1, 2);
  w.Tell(ExecutorAttached{id, {}, 0});
  w.Tell(ExecutorGone{.session = id, .why = absl::UnavailableError("no"), .rank = 1});
  ASSERT_NE(w.Get<Assign>(), nullptr) << "nothing was opened yet";
  EXPECT_EQ(w.Get<Assign>()->placement, 2u);
  EXPECT_TRUE(w.core.Awaits(id, 0)) << "by the new one";
  w.AttachAll(id, 2);
  EXPECT_NE(w.Get<Live>(), nullptr);
}

TEST(CoreGroups, AParkedGroup_GoesOnWithAllItsDevices) {
  GroupWorld w;
  w.JoinOf(1, 2);
  const SessionId id = w.OpenOn(1, 2);
  w.AttachAll(id, 2);
  w.Tell(ClientGone{ConnId{1}});
  w.Pass(12, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 0u);
  const SessionId other = w.OpenOn(2, 1);
  w.AttachAll(other, 1);
  w.Resume(3, 1);
  EXPECT_EQ(w.Get<Live>(), nullptr) << "one device is not enough";
  w.Tell(ClientClosed{ConnId{2}, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->seats[0].slots.size(), 2u);
}

TEST(CoreGroups, AGroupWithAName_IsEnteredByAnotherClient) {
  GroupWorld w;
  w.JoinRecovering(1, 2);
  const SessionId id{0, 1};
  w.Tell(ClientOpen{.conn = ConnId{1},
                    .tenant = test::kTenant,
                    .devices = 2,
                    .session = id,
                    .resume_hash = Token{1, 1},
                    .mesh = {2},
                    .name = "run7"});
  w.AttachAll(id, 2);
  const auto enter = [&](uint64_t conn, uint32_t devices, std::vector<uint32_t> mesh,
                         const std::string& spread) {
    w.Tell(ClientAttach{.conn = ConnId{conn},
                        .tenant = test::kTenant,
                        .session = "run7",
                        .resume_hash = Token{1, conn},
                        .devices = devices,
                        .mesh = std::move(mesh),
                        .spread = spread});
  };
  const auto refused = [&](uint64_t conn) {
    const EndClient* const end = w.Get<EndClient>();
    return end != nullptr && end->conn == ConnId{conn} && absl::IsInvalidArgument(end->why);
  };
  for (const uint32_t devices : {1, 3}) {
    enter(2, devices, {}, "");
    ASSERT_TRUE(refused(2));
    outboard::test::ExpectAsDocumented(
        "Another number of devices than the session that is entered or forked",
        w.Get<EndClient>()->why);
  }
  enter(3, 0, {1, 2}, "");
  EXPECT_TRUE(refused(3));
  enter(4, 0, {}, "fsdp");
  EXPECT_TRUE(refused(4));
  enter(5, 2, {2}, "auto");
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);
  EXPECT_EQ(w.core.devices_busy(), 2u);
  w.Tell(ClientLeft{ConnId{5}});
  w.Pass(12, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 0u);
  enter(6, 0, {}, "");
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->seats[0].slots.size(), 2u);
}

TEST(CoreGroups, AFork_HasTheDevicesOfItsParentAndItsParts) {
  GroupWorld w;
  w.JoinRecovering(1, 2);
  w.JoinRecovering(2, 4, /*has_collectives=*/false);
  w.JoinRecovering(3, 2);
  const SessionId parent = w.OpenOn(1, 2), fork{0, 5};
  w.AttachAll(parent, 2);
  w.Tell(SnapshotKept{parent, "both parts", 7});
  const auto begin = [&](uint64_t conn, uint32_t devices) {
    w.Tell(ClientOpen{.conn = ConnId{conn},
                      .tenant = test::kTenant,
                      .devices = devices,
                      .session = {0, conn},
                      .resume_hash = Token{1, conn},
                      .fork_of = parent.Hex()});
  };
  begin(4, 1);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(w.Get<EndClient>()->why));
  begin(5, 0);
  ASSERT_NE(w.Get<ShareSnapshot>(), nullptr);
  EXPECT_EQ(w.Get<ShareSnapshot>()->devices, 2u);
  EXPECT_EQ(w.Get<ShareSnapshot>()->parent, parent);
  w.Tell(SnapshotShared{ConnId{5}, absl::OkStatus()});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{3}) << "on the other nobody holds parts";
  EXPECT_EQ(w.Get<Assign>()->devices.size(), 2u);
  EXPECT_EQ(w.Get<Assign>()->snapshot_seq, 7u);
  w.AttachAll(fork, 2);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "both parts");
  begin(6, 2);
  w.Tell(SnapshotShared{ConnId{6}, absl::FailedPreconditionError("nobody knows how they lie")});
  ASSERT_NE(w.Get<EndClient>(), nullptr) << "at once";
  EXPECT_TRUE(absl::IsFailedPrecondition(w.Get<EndClient>()->why));
}

TEST(CoreGroups, AWorkerThatRejoins_BringsTheWholeGroupBackOrNone) {
  GroupWorld w;
  w.JoinOf(1, 2);
  const SessionId id = w.OpenOn(1, 2);
  w.AttachAll(id, 2);
  w.Tell(WorkerGone{WorkerId{1}});
  w.JoinOf(11, 2, {{id, {0}, 1}});
  EXPECT_TRUE(w.Get<Welcome>()->sessions.empty()) << "one of two ranks";
  w.Tell(WorkerGone{WorkerId{11}});
  w.JoinOf(21, 2, {{id, {0, 1}, 1}});
  ASSERT_EQ(w.Get<Welcome>()->sessions.size(), 1u);
  w.AttachAll(id, 2);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);
}

// ---- on several workers -------------------------------------------------------------------------

TEST(CoreGroups, AGroupThatFitsOnNoWorker_IsSpreadOverFew) {
  GroupWorld w;
  w.JoinSpanning(1, 2);
  w.JoinSpanning(2, 4);
  w.JoinSpanning(3, 4);
  const SessionId id = w.OpenOn(1, 6);
  const std::vector<Assign> assigns = w.All<Assign>();
  ASSERT_EQ(assigns.size(), 2u);
  EXPECT_EQ(assigns[0].devices.size() + assigns[1].devices.size(), 6u);
  EXPECT_EQ(assigns[0].first_rank, 0u);
  EXPECT_EQ(assigns[1].first_rank, assigns[0].devices.size());
  EXPECT_EQ(assigns[0].placement, assigns[1].placement);
  EXPECT_EQ(assigns[0].parts, assigns[1].parts);
  ASSERT_EQ(assigns[0].parts.size(), 2u);
  EXPECT_EQ(assigns[1].parts[1].worker, assigns[1].worker);
  EXPECT_EQ(assigns[1].worker.value, 1u) << "the last two are those of a worker with no more";
  for (uint32_t rank = 0; rank < 5; ++rank) w.Tell(ExecutorAttached{id, {}, rank});
  EXPECT_EQ(w.Get<Live>(), nullptr);
  w.Tell(ExecutorAttached{id, {}, 5});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->seats.size(), 2u);
  EXPECT_EQ(w.core.CheckInvariants(), "");
}

TEST(CoreGroups, AGroupThatFitsOnOneWorker_IsOnOne) {
  GroupWorld w;
  w.JoinSpanning(1, 2);
  w.JoinSpanning(2, 3);
  w.OpenOn(1, 3);
  ASSERT_EQ(w.All<Assign>().size(), 1u);
  EXPECT_TRUE(w.Get<Assign>()->parts.empty());
  EXPECT_EQ(w.Get<Assign>()->worker.value, 2u);
}

TEST(CoreGroups, WorkersThatDoNotSpan_OrAreOfOtherHardware_AreNotJoined) {
  GroupWorld w;
  w.JoinOf(1, 2);
  w.JoinOf(2, 2);
  w.JoinSpanning(3, 2, "a");
  w.JoinSpanning(4, 2, "b");
  w.OpenOn(1, 3);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kResourceExhausted);
  w.JoinSpanning(5, 1, "b");
  w.OpenOn(2, 3);
  ASSERT_EQ(w.All<Assign>().size(), 2u);
  EXPECT_EQ(w.Get<Assign>()->worker.value, 4u);
}

TEST(CoreGroups, ASpreadGroup_ThatDoesNotFitNowWaitsAndIsNotOvertaken) {
  GroupWorld w;
  w.JoinSpanning(1, 2);
  w.JoinSpanning(2, 2);
  const SessionId one = w.OpenOn(1, 1);
  w.AttachAll(one, 1);
  const SessionId all = w.OpenOn(2, 4);
  EXPECT_NE(w.Get<Queued>(), nullptr);
  w.OpenOn(3, 1);
  EXPECT_EQ(w.Get<Assign>(), nullptr) << "what is free is kept for the large one";
  w.Tell(ClientClosed{ConnId{1}, {}});
  ASSERT_EQ(w.All<Assign>().size(), 2u);
  EXPECT_EQ(w.Get<Assign>()->session, all);
}

TEST(CoreGroups, ALostWorker_EndsASpreadGroupEverywhereAndIsNamed) {
  GroupWorld w;
  w.JoinSpanning(1, 2);
  w.JoinSpanning(2, 2);
  const SessionId id = w.OpenOn(1, 4);
  const WorkerId second = w.All<Assign>().at(1).worker;
  w.AttachAll(id, 4);
  w.Tell(WorkerGone{second});
  ASSERT_NE(w.Get<EndClient>(), nullptr) << "the others do not wait for it to come back";
  const absl::Status why = w.Get<EndClient>()->why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(why.message().find("rank 2 of 4 (device 0 of box#" + std::to_string(second.value)),
            std::string::npos)
      << why;
  EXPECT_EQ(w.All<EndExecutor>().size(), 2u);
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.core.CheckInvariants(), "");
}

TEST(CoreGroups, ASpreadGroup_IsBilledForTheDevicesOfAllItsWorkers) {
  GroupWorld w;
  w.JoinSpanning(1, 1);
  w.JoinSpanning(2, 1);
  const SessionId id = w.OpenOn(1, 2);
  w.AttachAll(id, 2);
  w.Pass(4, {WorkerId{1}, WorkerId{2}}, {id});
  w.Tell(ClientClosed{ConnId{1}, {}});
  EXPECT_EQ(w.posted_ms, 2 * 4000);
}

TEST(CoreGroups, AWorker_SpeaksOfItsOwnRanks) {
  GroupWorld w;
  w.JoinSpanning(1, 1);
  w.JoinSpanning(2, 1);
  const SessionId id = w.OpenOn(1, 2);
  const WorkerId second = w.All<Assign>().at(1).worker;
  w.AttachAll(id, 2);
  w.Tell(ExecutorGone{.session = id,
                      .why = absl::UnavailableError("killed by signal 9"),
                      .worker = second,
                      .rank = 0});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_NE(w.Get<EndClient>()->why.message().find("rank 1 of 2"), std::string::npos)
      << w.Get<EndClient>()->why;
}

TEST(CoreGroups, ASpreadGroup_WhoseClientLeavesKeepsItsDevices) {
  GroupWorld w;
  w.JoinSpanning(1, 1);
  w.JoinSpanning(2, 1);
  const SessionId id = w.OpenOn(1, 2);
  w.AttachAll(id, 2);
  w.Tell(ClientGone{ConnId{1}});
  w.Pass(12, {WorkerId{1}, WorkerId{2}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 2u) << "no one gives both back to it at once";
  w.Resume(3, 1);
  EXPECT_NE(w.Get<Live>(), nullptr);
}

}  // namespace
}  // namespace outboard::gateway
