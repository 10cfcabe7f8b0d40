// What GatewayCore does when workers, executors or the gateway itself are lost and come back. G1 to
// G10 are the invariants in core.cc.
#include <gtest/gtest.h>

#include <string>

#include "telemetry/metric.h"
#include "tests/gateway/core_world.h"
#include "tests/support/documented.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::World;

CoreOptions Recoverable() {
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  return options;
}

SessionRestored Row(uint64_t opened, bool recoverable = false) {
  SessionRestored row;
  row.session = SessionId{0, opened};
  row.tenant = kTenant;
  row.resume_hash = Token{1, opened};
  row.epoch = 4;
  row.grant = 2;
  row.worker_identity = "node1";
  row.had_client = true;
  row.recoverable = recoverable;
  row.past_ms = 7000;
  return row;
}

HeldExecutor Held(SessionId id, uint32_t device = 0, uint64_t placement = 1) {
  return {id, {device}, placement};
}

// As a session ends whose executor nothing may follow.
absl::Status AndItsValuesAreGone(const absl::Status& why) {
  return {why.code(), std::string(why.message()) + "; the session's values are gone"};
}

// ---- a worker's connection
// -----------------------------------------------------------------------

TEST(GatewayCoreRecovery, AWorkerThatComesBackWithItsExecutorsLosesNothing) {
  World w;
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Pass(3, {WorkerId{1}}, {id});
  w.After(0.5, WorkerGone{WorkerId{1}});
  EXPECT_NE(w.Get<DropExecutor>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>(), nullptr);
  w.After(0.5);
  w.Join(11, 1, {Held(id)});
  ASSERT_NE(w.Get<Welcome>(), nullptr);
  ASSERT_EQ(w.Get<Welcome>()->sessions.size(), 1u);
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  EXPECT_TRUE(w.core.Awaits(id));
  w.Tell(ExecutorAttached{id, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);  // the client is told on the stream that it has
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{1});
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);  // G6
  w.Pass(2, {WorkerId{11}}, {id});
  EXPECT_EQ(w.core.BillOf(id).ms, 5000);  // not the second between
}

TEST(GatewayCoreRecovery, AWorkerThatDoesNotComeBackEndsWhatNobodyElseCanGoOnWith) {
  World w;
  w.Join(1);
  w.OpenLive(1);
  w.Tell(WorkerGone{WorkerId{1}});
  w.Silence(1.5);
  EXPECT_EQ(w.core.session_count(), 1u);
  w.Silence(1);
  EXPECT_EQ(w.core.session_count(), 0u);
}

TEST(GatewayCoreRecovery, AnExecutorOfASessionThatHasMovedIsNotTakenBack) {
  World w(Recoverable());
  w.Join(1);
  w.Join(2);
  SessionId id = w.OpenLive(1);
  w.Tell(WorkerGone{WorkerId{1}});
  w.Pass(4, {WorkerId{2}});
  w.Tell(ExecutorAttached{id, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  w.Join(11, 1, {Held(id)});
  EXPECT_TRUE(w.Get<Welcome>()->sessions.empty());
  // G9: and what it still says is not heard.
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, /*placement=*/1});
  EXPECT_EQ(w.Get<DropExecutor>(), nullptr);
  EXPECT_EQ(w.core.session_count(), 1u);
}

TEST(GatewayCoreRecovery, AGatewayThatStoodStillBlamesNobody) {
  World w;
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Pass(2, {WorkerId{1}}, {id});
  w.After(30);  // stopped, as by SIGSTOP
  EXPECT_EQ(w.core.session_count(), 1u);
  w.Pass(2, {WorkerId{1}}, {id});
  EXPECT_LE(w.core.BillOf(id).ms, 4000);  // not what nobody vouches for
}

TEST(GatewayCoreRecovery, AnUnheardWorkerIsToldThatItIsLost) {
  World w;
  w.Join(1);
  bool told = false;
  for (int i = 0; i < 12; ++i) {
    w.After(0.5);
    told |= w.Get<EndWorker>() != nullptr;
  }
  EXPECT_TRUE(told);
  EXPECT_EQ(w.core.worker_count(), 0u);
}

// ---- moving
// --------------------------------------------------------------------------------------

TEST(GatewayCoreRecovery, ARecoverableSessionGoesOnOnAnotherWorker) {
  World w(Recoverable());
  w.Join(1);
  w.Join(2);
  SessionId id = w.OpenLive(1);
  EXPECT_TRUE(w.Get<Live>()->recoverable);
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "");
  w.Pass(5, {WorkerId{1}, WorkerId{2}}, {id});
  w.Tell(SnapshotKept{id, "root", 40});
  ASSERT_NE(w.Get<WriteSession>(), nullptr);
  EXPECT_EQ(w.Get<WriteSession>()->snapshot_root, "root");
  EXPECT_EQ(w.Get<WriteSession>()->snapshot_seq, 40u);
  w.Tell(SnapshotKept{id, "older", 39});  // late
  EXPECT_EQ(w.Get<WriteSession>(), nullptr);

  w.After(0.9, WorkerGone{WorkerId{1}});
  w.history.clear();
  w.Pass(3, {WorkerId{2}});
  const Assign* assign = nullptr;
  bool told = false;
  for (const Action& action : w.history) {
    if (const auto* found = std::get_if<Assign>(&action)) assign = found;
    told |= std::get_if<Moving>(&action) != nullptr;
  }
  ASSERT_NE(assign, nullptr);
  EXPECT_TRUE(told);
  EXPECT_EQ(assign->worker, WorkerId{2});
  EXPECT_EQ(assign->placement, 2u);
  w.Tell(ExecutorAttached{id, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{1});
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "root");
  EXPECT_EQ(w.core.BillOf(id).ms, 5000);  // M5: from the last heartbeat until it is live again
  w.Pass(2, {WorkerId{2}}, {id});
  EXPECT_EQ(w.core.BillOf(id).ms, 7000);
}

TEST(GatewayCoreRecovery, ACrashedExecutorIsReplacedOnTheSameWorkerWhereThereIsNoOther) {
  World w(Recoverable());
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Tell(ExecutorGone{id, absl::UnavailableError("executor ended by signal 9"), true, 1});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_NE(w.Get<EndExecutor>(), nullptr);  // before it, so that the worker has forgotten
  w.Tell(ExecutorAttached{id, {}});
  EXPECT_NE(w.Get<Live>(), nullptr);
  // The first one's last word, which the release has brought about.
  w.Tell(ExecutorGone{id, absl::OkStatus(), true, 1});
  EXPECT_TRUE(w.actions.empty());
}

TEST(GatewayCoreRecovery, AnotherWorkerGoesBeforeTheOneThatLostIt) {
  World w(Recoverable());
  w.Join(1, 2);
  w.Join(2, 2);
  SessionId id = w.OpenLive(1);
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 11"), true, 1});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
}

TEST(GatewayCoreRecovery, WhatASessionBringsOnItselfIsNotTriedAgain) {
  World w(Recoverable());
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Tell(ExecutorGone{id, absl::DeadlineExceededError("a step"), /*crashed=*/false, 1});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kDeadlineExceeded);
}

// An end that the session may have caused, or its device: the second try decides.
TEST(GatewayCoreRecovery, WhatASessionMayHaveCaused_IsTriedOnceMoreOnAnotherDevice) {
  World w(Recoverable());
  w.Join(1, 2);
  SessionId id = w.OpenLive(1);
  const absl::Status late = absl::DeadlineExceededError("kernel k was not done after 30 s");
  w.Tell(ExecutorGone{id, late, false, 1, WorkerId{1}, /*once_more=*/true});
  EXPECT_EQ(w.Get<EndClient>(), nullptr);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->devices, std::vector<uint32_t>{1});
  w.Tell(ExecutorAttached{id, {}});
  w.Tell(ExecutorGone{id, late, false, 2, WorkerId{1}, /*once_more=*/true});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why, AndItsValuesAreGone(late));
  EXPECT_EQ(w.core.CheckInvariants(), "");
}

// The second try has shown that it is the item: the third executor does not apply it.
TEST(GatewayCoreRecovery, AnItemThatEndsTwoExecutors_IsRefusedByTheThird) {
  World w(Recoverable());
  w.Join(1, 2);
  SessionId id = w.OpenLive(1);
  const absl::Status late = absl::DeadlineExceededError("kernel k was not done after 30 s");
  w.Tell(ExecutorGone{id, late, false, 1, WorkerId{1}, /*once_more=*/true, /*seq=*/5});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_TRUE(w.Get<Assign>()->refused.empty());
  w.Tell(ExecutorAttached{id, {}});
  w.Tell(ExecutorGone{id, late, false, 2, WorkerId{1}, /*once_more=*/true, /*seq=*/5});
  EXPECT_EQ(w.Get<EndClient>(), nullptr);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  ASSERT_EQ(w.Get<Assign>()->refused.size(), 1u);
  EXPECT_EQ(w.Get<Assign>()->refused[0].seq, 5u);
  EXPECT_EQ(w.Get<Assign>()->refused[0].why, late);
  // What a snapshot holds need not be refused again.
  w.Tell(ExecutorAttached{id, {}});
  w.Tell(SnapshotKept{id, "root", 6});
  w.Pass(601, {WorkerId{1}}, {id});
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, 3});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_TRUE(w.Get<Assign>()->refused.empty());
}

TEST(GatewayCoreRecovery, WithoutASnapshot_TheFirstEndOfThisKindIsTheLast) {
  World w;
  w.Join(1, 2);
  SessionId id = w.OpenLive(1);
  const absl::Status late = absl::DeadlineExceededError("kernel k was not done after 30 s");
  w.Tell(ExecutorGone{id, late, false, 1, WorkerId{1}, /*once_more=*/true});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why, AndItsValuesAreGone(late));
}

// Nobody knows then whether it was the device or the session: that is a loss, not the session's
// fault.
TEST(GatewayCoreRecovery, WithoutASnapshot_ADeviceThatFailsIsALoss) {
  World w;
  w.Join(1, 2);
  SessionId id = w.OpenLive(1);
  const absl::Status broken = absl::InternalError("CUDA: a GPU is lost to this process");
  w.Tell(ExecutorGone{id, broken, false, 1, WorkerId{1}, /*once_more=*/true, /*seq=*/5});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  const absl::Status why = w.Get<EndClient>()->why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  outboard::test::ExpectAsDocumented(
      "A GPU fails (`CUDA_ERROR_ECC_UNCORRECTABLE`, `CUDA_ERROR_ILLEGAL_ADDRESS` ...)", why);
  EXPECT_NE(why.message().find(broken.message()), why.message().npos) << why;
}

TEST(GatewayCoreRecovery, ADeviceOutOfService_GetsNoSession) {
  World w(Recoverable());
  w.Join(1, 2);
  w.Tell(DeviceWentOut{WorkerId{1}, 0});
  w.Tell(DeviceWentOut{WorkerId{1}, 7});  // there is none
  EXPECT_EQ(w.core.CountAll(MonoTime{w.now_ns}).devices_out, 1u);
  w.OpenLive(1);
  EXPECT_EQ(w.core.devices_busy(), 1u);
  w.Open(2);  // waits, though a device is held by nobody
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.core.CheckInvariants(), "");
}

// Its process would stay on the device beside the next one's.
TEST(GatewayCoreRecovery, AParkedSessionOfAnExclusiveDevice_GoesToDisk) {
  World w(Recoverable());
  w.Tell(WorkerJoined{.worker = WorkerId{1},
                      .name = "gpu#",
                      .devices = std::vector<DeviceSlot>(1),
                      .worker_identity = "gpu",
                      .exclusive = true});
  const SessionId id = w.OpenLive(1);
  w.Tell(ClientGone{ConnId{1}});
  w.Pass(15, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.CountAll(MonoTime{w.now_ns})
                .by_state[static_cast<size_t>(telemetry::SessionStateLabel::kStored)],
            1u);
  w.OpenLive(2);
  EXPECT_EQ(w.core.CheckInvariants(), "");
}

TEST(GatewayCoreRecovery, AClientThatKeepsNothingIsNotRecoverable) {
  World w(Recoverable());
  w.Join(1, 2);
  SessionId id{0, 1};
  w.Tell(ClientOpen{ConnId{1}, kTenant, 1, id, Token{1, 1}, {}, /*recovers=*/false});
  w.Tell(ExecutorAttached{id, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_FALSE(w.Get<Live>()->recoverable);
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, 1});
  EXPECT_NE(w.Get<EndClient>(), nullptr);
}

TEST(GatewayCoreRecovery, AMovingSessionWaitsForADeviceAndGoesBeforeTheOthers) {
  World w(Recoverable());
  w.Join(1);
  SessionId first = w.OpenLive(1);
  w.Open(2);  // waits
  w.Tell(WorkerGone{WorkerId{1}});
  w.Silence(3);
  EXPECT_EQ(w.core.session_count(), 2u);
  w.Join(12);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, first);
}

TEST(GatewayCoreRecovery, G7AMovingSessionDoesNotWaitForEver) {
  World w(Recoverable());
  w.Join(1);
  w.OpenLive(1);
  w.Tell(WorkerGone{WorkerId{1}});
  for (int i = 0; i < 130 && w.core.session_count() > 0; ++i) w.After(0.5);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  outboard::test::ExpectAsDocumented(
      "A worker is lost, there are snapshots, and for 60 s no other could serve the session",
      w.Get<EndClient>()->why);
}

TEST(GatewayCoreRecovery, ALostSessionWithoutAClientBeginsAgainWhenItComes) {
  World w(Recoverable());
  w.Join(1, 2);
  SessionId id = w.OpenLive(1);
  w.Tell(SnapshotKept{id, "root", 9});
  w.Tell(ClientGone{ConnId{1}});
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, 1});
  EXPECT_EQ(w.Get<Assign>(), nullptr);  // nobody to pay for it
  EXPECT_EQ(w.core.devices_busy(), 0u);
  w.Pass(100, {WorkerId{1}});
  w.Resume(2, 1);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  w.Tell(ExecutorAttached{id, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "root");
}

TEST(GatewayCoreRecovery, AClientThatLeavesWhileItsSessionMovesMayComeBack) {
  World w(Recoverable());
  w.Join(1);
  SessionId id = w.OpenLive(1);
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, 1});
  w.Tell(ClientGone{ConnId{1}});
  w.Tell(ExecutorAttached{id, {}});
  EXPECT_EQ(w.Get<Live>(), nullptr);
  w.Pass(12, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 0u);  // idle
  w.Resume(2, 1);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.core.BillOf(id).ms, 0);
}

TEST(GatewayCoreRecovery, AnExecutorThatNeverComesBeforeTheSessionIsOpenIsTriedElsewhere) {
  World w;  // nothing was opened, so nothing is lost
  w.Join(1);
  w.Join(2);
  SessionId id = w.Open(1);
  w.Tell(ExecutorGone{id, absl::UnavailableError("cannot be started"), true, 1});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
  EXPECT_EQ(w.Get<Moving>(), nullptr);
}

// ---- the gateway was started again
// ---------------------------------------------------------------

TEST(GatewayCoreRecovery, AfterARestartAnExecutorAndItsClientFindEachOther) {
  for (bool client_first : {true, false}) {
    World w;
    w.Tell(Row(1));
    const SessionId id{0, 1};
    if (client_first) {
      w.Resume(5, 1);
      EXPECT_EQ(w.Get<EndClient>(), nullptr);
      w.After(2);
    }
    w.Join(1, 1, {Held(id, 0, 3)});
    ASSERT_EQ(w.Get<Welcome>()->sessions.size(), 1u);
    // Its device is its own: nobody who comes first gets it.
    w.Open(9);
    EXPECT_EQ(w.Get<Assign>(), nullptr);
    w.Tell(ExecutorAttached{id, {}});
    if (!client_first) {
      EXPECT_EQ(w.Get<Live>(), nullptr);
      w.Resume(5, 1);
    }
    ASSERT_NE(w.Get<Live>(), nullptr) << client_first;
    EXPECT_EQ(w.Get<Live>()->session, id);
    EXPECT_EQ(w.Get<Live>()->epoch, 5u);
    ASSERT_NE(w.Get<BeginLease>(), nullptr);
    EXPECT_EQ(w.Get<BeginLease>()->lease.grant, 3u);  // never one that was used
    EXPECT_EQ(w.core.BillOf(id).ms, 7000);
    w.Pass(3, {WorkerId{1}}, {id});
    EXPECT_EQ(w.core.BillOf(id).ms, 10000);
    EXPECT_EQ(w.posted_ms, 0);  // of this gateway, nothing yet
    w.After(0.1, ClientClosed{ConnId{5}});
    EXPECT_EQ(w.Get<EndClient>()->bill.ms, 10100);
    EXPECT_EQ(w.posted_ms, 3100);
  }
}

TEST(GatewayCoreRecovery, AfterARestartAnExecutorWithoutItsClientIsParkedAndForgotten) {
  World w;
  w.Tell(Row(1));
  const SessionId id{0, 1};
  w.Join(1, 1, {Held(id)});
  w.Tell(ExecutorAttached{id, {}});
  w.Pass(12, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.core.session_count(), 1u);
  w.Pass(900, {WorkerId{1}}, {id});
  EXPECT_EQ(w.core.session_count(), 0u);
  EXPECT_EQ(w.posted_ms, 0);  // nobody could use it
}

TEST(GatewayCoreRecovery, OfTwoExecutorsOnOneDeviceTheOneWithoutAClientWaits) {
  World w;
  w.Tell(Row(1));
  SessionRestored parked = Row(2);
  parked.had_client = false;
  w.Tell(parked);
  w.Join(1, 1, {Held({0, 2}), Held({0, 1})});
  EXPECT_EQ(w.Get<Welcome>()->sessions.size(), 2u);
  w.Tell(ExecutorAttached{SessionId{0, 1}, {}});
  w.Tell(ExecutorAttached{SessionId{0, 2}, {}});
  w.Resume(5, 1);
  EXPECT_NE(w.Get<Live>(), nullptr);
  w.Resume(6, 2);
  EXPECT_NE(w.Get<Queued>(), nullptr);
  w.Tell(ClientClosed{ConnId{5}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{6});
}

TEST(GatewayCoreRecovery, G1AnExecutorThatNamesItsSlotTwiceWaitsForOne) {
  World w;
  w.Tell(Row(1));
  w.Join(1, 2, {HeldExecutor{{0, 1}, {0, 0}, 1}});
  EXPECT_EQ(w.core.devices_busy(), 0u);
  w.Tell(ExecutorAttached{SessionId{0, 1}, {}});
  w.Resume(5, 1);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.core.devices_busy(), 1u);
}

TEST(GatewayCoreRecovery, G7AfterARestartAWorkerThatDoesNotJoinIsLost) {
  World w;
  w.Tell(Row(1));
  w.Resume(5, 1);
  w.Join(2);  // another node
  for (int i = 0; i < 59; ++i) w.Pass(1, {WorkerId{2}});
  EXPECT_EQ(w.core.session_count(), 1u);
  w.history.clear();
  w.Pass(3, {WorkerId{2}});
  EXPECT_EQ(w.core.session_count(), 0u);
  const EndClient* end = nullptr;
  for (const Action& action : w.history) {
    if (const auto* found = std::get_if<EndClient>(&action)) end = found;
  }
  ASSERT_NE(end, nullptr);
  EXPECT_NE(end->why.message().find("worker lost: node1"), std::string::npos);
}

TEST(GatewayCoreRecovery, AfterARestartOfEverythingARecoverableSessionBeginsAtItsSnapshot) {
  World w(Recoverable());
  SessionRestored row = Row(1, /*recoverable=*/true);
  row.snapshot_root = "root";
  row.snapshot_seq = 40;
  w.Tell(row);
  w.Resume(5, 1);
  w.Join(1);  // node1, without the executor: it has ended, so nobody waits for it
  ASSERT_NE(w.Get<Assign>(), nullptr);
  w.Tell(ExecutorAttached{SessionId{0, 1}, {}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 5u);
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "root");
}

TEST(GatewayCoreRecovery, G9OnlyTheWorkerThatHasTheExecutorSaysThatItEnded) {
  World w(Recoverable());
  w.Join(1);
  const SessionId id = w.OpenLive(1);
  w.Join(2);
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, 1, WorkerId{2}});
  EXPECT_TRUE(w.actions.empty());
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, 1, WorkerId{1}});
  EXPECT_NE(w.Get<DropExecutor>(), nullptr);
}

TEST(GatewayCoreRecovery, G11WhatAWorkerHadThatIsSetAsideGoesOnElsewhere) {
  World w(Recoverable());
  w.Join(1, 2);
  const SessionId live = w.OpenLive(1), parked = w.OpenLive(2);
  w.Tell(ClientGone{ConnId{2}});
  w.Pass(11, {WorkerId{1}}, {live, parked});  // idle, so it has no device
  w.Join(2, 1);
  w.Tell(WorkerSetAside{WorkerId{1}});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
  EXPECT_EQ(w.Get<Assign>()->session, live);
  EXPECT_NE(w.Get<Moving>(), nullptr);
  EXPECT_EQ(w.core.CountAll(MonoTime{w.now_ns}).workers_set_aside, 1u);
  EXPECT_EQ(w.core.devices_total(), 1u);
  const SessionId next = w.Open(3);  // its two devices are free, and nobody gets them
  EXPECT_EQ(w.Get<Assign>(), nullptr);
  w.Tell(WorkerSetAside{WorkerId{1}, false});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->session, next);
}

TEST(GatewayCoreRecovery, G11AWorkerThatJoinsSetAsideKeepsNothing) {
  World w(Recoverable());
  w.Join(1);
  const SessionId id = w.OpenLive(1);
  w.Tell(WorkerGone{WorkerId{1}});
  w.Join(2);
  WorkerJoined again{.worker = WorkerId{11},
                     .name = "node1#",
                     .devices = std::vector<DeviceSlot>(1),
                     .worker_identity = "node1",
                     .held = {{id, {0}, 1}},
                     .set_aside = true};
  w.Tell(again);
  ASSERT_NE(w.Get<Welcome>(), nullptr);
  EXPECT_TRUE(w.Get<Welcome>()->sessions.empty());
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->worker, WorkerId{2});
}

TEST(GatewayCoreRecovery, G11WhereEveryWorkerIsSetAsideAClientIsToldSo) {
  World w;
  w.Join(1);
  w.OpenLive(1);
  w.Tell(WorkerSetAside{WorkerId{1}});
  ASSERT_NE(w.Get<EndClient>(), nullptr);  // no snapshot: nothing to go on with
  EXPECT_TRUE(absl::IsUnavailable(w.Get<EndClient>()->why));
  w.Open(2);
  w.Pass(21, {WorkerId{1}});
  bool told = false;
  for (const Action& action : w.history)
    if (const auto* end = std::get_if<EndClient>(&action))
      told |= end->why.message().find("set aside") != std::string::npos;
  EXPECT_TRUE(told);
}

TEST(GatewayCoreRecovery, G9AfterARestartNoPlacementComesAgain) {
  World w(Recoverable());
  SessionRestored row = Row(1, /*recoverable=*/true);
  row.placement = 1000;
  w.Tell(row);
  w.Resume(5, 1);
  w.Join(1);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  EXPECT_EQ(w.Get<Assign>()->placement, 1001u);
  w.Tell(ExecutorGone{SessionId{0, 1}, absl::UnavailableError("signal 9"), true, 1, WorkerId{1}});
  EXPECT_TRUE(w.actions.empty());  // of the one before
}

TEST(GatewayCoreRecovery, WhereSnapshotsAreOffAClientLetsGoAndCannotBeRecoveredLater) {
  World w;  // the gateway before it took snapshots
  w.Tell(Row(1, /*recoverable=*/true));
  w.Join(1, 1, {Held({0, 1}, 0, 1)});
  w.Tell(ExecutorAttached{SessionId{0, 1}, {}});
  w.Resume(5, 1);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_FALSE(w.Get<Live>()->recoverable);
  w.Tell(ExecutorGone{SessionId{0, 1}, absl::UnavailableError("signal 9"), true, 1});
  EXPECT_NE(w.Get<EndClient>(), nullptr);
}

}  // namespace
}  // namespace outboard::gateway
