// Sessions with names in the core (G17): who finds which, what a client leaves behind, and what
// another enters or begins with.
#include <string>

#include "absl/strings/match.h"
#include "tests/gateway/core_world.h"

namespace outboard::gateway {
namespace {

constexpr TenantId kOther{8};
const absl::Status kCapped = absl::ResourceExhaustedError("the cap of this session is reached");

struct NamesWorld : test::World {
  explicit NamesWorld(uint32_t devices = 1, uint32_t sessions_max = 64)
      : World({.snapshot_ns = 60 * kSecondNs, .sessions_per_tenant_max = sessions_max}) {
    Join(1, devices);
  }
  void Join(uint64_t worker, uint32_t devices) {
    WorkerJoined event{WorkerId{worker}, "w#", std::vector<DeviceSlot>(devices),
                       "node" + std::to_string(worker)};
    event.snapshots_when_asked = true;
    Tell(event);
  }
  ClientOpen OpenOf(uint64_t conn, const std::string& name, TenantId tenant = test::kTenant) {
    ClientOpen open{ConnId{conn}, tenant, 1, SessionId{0, conn}, Token{1, conn}, WallTime{}};
    open.name = name;
    return open;
  }
  SessionId LiveAs(uint64_t conn, const std::string& name, TenantId tenant = test::kTenant) {
    const ClientOpen open = OpenOf(conn, name, tenant);
    Tell(open);
    Tell(ExecutorAttached{open.session, WallTime{}});
    EXPECT_NE(Get<Live>(), nullptr);
    return open.session;
  }
  void Enter(uint64_t conn, const std::string& session, TenantId tenant = test::kTenant) {
    Tell(ClientAttach{ConnId{conn}, tenant, session, Token{1, conn}, WallTime{}});
  }
  void Fork(uint64_t conn, const std::string& of, uint64_t seq = 0,
            TenantId tenant = test::kTenant) {
    ClientOpen open = OpenOf(conn, "", tenant);
    open.fork_of = of;
    open.fork_seq = seq;
    Tell(open);
  }
  const EndClient* EndOf(uint64_t conn) const {
    for (const Action& action : actions) {
      const auto* const end = std::get_if<EndClient>(&action);
      if (end != nullptr && end->conn.value == conn) return end;
    }
    return nullptr;
  }
  std::string StateOf(const SessionId& id) const {
    for (const GatewayCore::Listed& listed : core.List(test::kTenant, MonoTime{now_ns}))
      if (listed.session == id) return listed.state;
    return "none";
  }
};

TEST(GatewayCoreNames, G17ANameIsOnceInAnAccountAndFreeWithItsSession) {
  NamesWorld w(4);
  w.LiveAs(1, "run7");
  w.Tell(w.OpenOf(2, "run7"));
  ASSERT_NE(w.EndOf(2), nullptr);
  EXPECT_TRUE(absl::IsAlreadyExists(w.EndOf(2)->why));
  EXPECT_TRUE(absl::StrContains(w.EndOf(2)->why.message(), "outboard stop run7"));
  w.LiveAs(3, "run7", kOther);
  w.LiveAs(4, "run8");
  w.Tell(ClientClosed{ConnId{1}, absl::OkStatus()});
  w.LiveAs(5, "run7");
}

TEST(GatewayCoreNames, AnothersSessionIsNotFoundByNameNorById) {
  NamesWorld w;
  const SessionId id = w.LiveAs(1, "run7");
  absl::Status of_none;
  w.Enter(2, "nothing", kOther);
  of_none = w.EndOf(2)->why;
  for (const std::string& text : {std::string("run7"), id.Hex()}) {
    w.Enter(3, text, kOther);
    ASSERT_NE(w.EndOf(3), nullptr);
    EXPECT_EQ(w.EndOf(3)->why.code(), of_none.code());
    EXPECT_FALSE(w.core.FindNamed(kOther, text).has_value());
    w.Fork(4, text, 0, kOther);
    EXPECT_TRUE(absl::IsNotFound(w.EndOf(4)->why));
  }
  EXPECT_TRUE(w.core.IsLive(id, ConnId{1}, 1));
  EXPECT_TRUE(w.core.List(kOther, MonoTime{w.now_ns}).empty());
}

TEST(GatewayCoreNames, WhoEntersALiveSessionEndsItsClient_WhichCannotComeBack) {
  NamesWorld w;
  const SessionId id = w.LiveAs(1, "run7");
  w.Enter(2, "run7");
  ASSERT_NE(w.EndOf(1), nullptr);
  EXPECT_TRUE(absl::IsAborted(w.EndOf(1)->why));
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->epoch, 2u);
  EXPECT_TRUE(w.core.IsLive(id, ConnId{2}, 2));
  w.Resume(3, 1);
  EXPECT_TRUE(absl::IsNotFound(w.EndOf(3)->why));
  w.Resume(4, 2);
  EXPECT_TRUE(w.core.IsLive(id, ConnId{4}, 3));
}

TEST(GatewayCoreNames, WhoLeavesGivesTheDeviceBackAtOnce_AndTheStateWaits) {
  NamesWorld w;
  const SessionId id = w.LiveAs(1, "run7");
  w.Tell(SessionProgress{id, false, 5});
  w.Tell(ClientLeft{ConnId{1}});
  ASSERT_NE(w.EndOf(1), nullptr);
  EXPECT_TRUE(w.EndOf(1)->why.ok());
  w.After(0.2);
  EXPECT_EQ(w.StateOf(id), "parked");
  EXPECT_EQ(w.core.devices_busy(), 0u);
  w.Tell(SnapshotKept{id, "root", 5});
  w.Pass(700, {WorkerId{1}}, {id});
  EXPECT_EQ(w.StateOf(id), "stored");
  w.Pass(1000, {WorkerId{1}});
  EXPECT_TRUE(w.core.Has(id)) << "longer than one without a name";
  w.Enter(2, "run7");
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "root");
  EXPECT_EQ(w.Get<Live>()->name, "run7");
}

TEST(GatewayCoreNames, WithoutANameItEndsAfterTheGraceTime_ButIsFoundByIdUntilThen) {
  NamesWorld w;
  const SessionId id = w.OpenLive(1);
  w.Tell(ClientLeft{ConnId{1}});
  w.After(0.2);
  w.Enter(2, id.Hex());
  EXPECT_TRUE(w.core.Has(id));
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Tell(ClientLeft{ConnId{2}});
  w.Pass(1000, {WorkerId{1}}, {id});
  EXPECT_FALSE(w.core.Has(id));
}

TEST(GatewayCoreNames, WhatIsEnteredIsAskedForASnapshot_UnlessOneHasAll) {
  for (const bool saved : {false, true}) {
    NamesWorld w;
    const SessionId id = w.LiveAs(1, "run7");
    w.Tell(SessionProgress{id, false, 5});
    if (saved) w.Tell(SnapshotKept{id, "root", 5});
    w.Enter(2, "run7");
    EXPECT_EQ(w.Get<RequestSnapshot>() == nullptr, saved);
  }
}

// Items that another client sent before are none that this one repeats.
TEST(GatewayCoreNames, WhatTheNextClientDoesIsNoReplay) {
  NamesWorld w;
  const SessionId id = w.LiveAs(1, "run7");
  w.Tell(SnapshotKept{id, "root", 2});
  w.Tell(SessionProgress{id, false, 50});
  w.Tell(ClientGone{ConnId{1}});
  w.Tell(ExecutorGone{.session = id, .why = absl::UnavailableError("crashed")});
  EXPECT_EQ(w.StateOf(id), "stored");
  w.Enter(2, "run7");
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  const int64_t before = w.core.BillOf(id).ms;
  for (int i = 0; i < 5; ++i) {
    w.now_ns += kSecondNs;
    w.Tell(WorkerHeartbeat{WorkerId{1}, {id}});
    w.Tell(SessionProgress{id, true, 3});
    w.Tell(Tick{});
  }
  EXPECT_GE(w.core.BillOf(id).ms - before, 4900);
}

TEST(GatewayCoreNames, StoppedForMoney_ItsStateIsKeptForItsClientAndForOthers) {
  NamesWorld w;
  w.asks_money = true;
  const auto answer = [&](int64_t ms, const absl::Status& why) {
    const TakeHold* last = nullptr;
    for (const Action& action : w.history)
      if (const auto* hold = std::get_if<TakeHold>(&action)) last = hold;
    ASSERT_NE(last, nullptr);
    w.Tell(HoldAnswered{last->request.lease.session, last->number, {ms, why}});
  };
  const ClientOpen open = w.OpenOf(1, "run7");
  w.Tell(open);
  w.Tell(ExecutorAttached{open.session, WallTime{}});
  answer(10'000, kCapped);
  ASSERT_NE(w.Get<Live>(), nullptr);
  w.Tell(SessionProgress{open.session, false, 5});
  for (int i = 0; i < 10 && w.EndOf(1) == nullptr; ++i) {
    w.now_ns += kSecondNs;
    w.Tell(WorkerHeartbeat{WorkerId{1}, {open.session}});
    w.Tell(Tick{});
  }
  ASSERT_NE(w.EndOf(1), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(w.EndOf(1)->why));
  EXPECT_TRUE(w.EndOf(1)->is_kept);
  w.After(0.2);
  EXPECT_EQ(w.StateOf(open.session), "parked");
  EXPECT_FALSE(w.core.List(test::kTenant, MonoTime{w.now_ns})[0].stopped.ok());
  // Still nobody pays: whoever tries is told, and may try again.
  w.Enter(2, "run7");
  answer(0, kCapped);
  ASSERT_NE(w.EndOf(2), nullptr);
  EXPECT_TRUE(w.EndOf(2)->is_kept);
  w.After(0.2);
  w.Enter(3, "run7");
  answer(60'000, absl::OkStatus());
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{3});
}

TEST(GatewayCoreNames, AStoppingGatewayLeavesSavedSessionsToTheNext) {
  NamesWorld w(3);
  const SessionId named = w.LiveAs(1, "run7");
  w.LiveAs(2, "run8");  // not saved
  w.OpenLive(3);
  w.Tell(SnapshotKept{named, "root", 2});
  w.Tell(StopAll{});
  int forgotten = 0;
  for (const Action& action : w.actions) {
    if (const auto* forget = std::get_if<Forget>(&action)) {
      ++forgotten;
      EXPECT_EQ(forget->goes_on, forget->session == named);
    }
    if (const auto* row = std::get_if<WriteSession>(&action)) {
      EXPECT_EQ(row->state == SessionRowState::kDetached, row->session == named);
      EXPECT_TRUE(row->session != named || row->name == "run7");
      EXPECT_FALSE(row->session == named && row->worker.has_value());
    }
  }
  EXPECT_EQ(forgotten, 3);
  EXPECT_EQ(w.core.session_count(), 0u);

  NamesWorld next;
  next.Tell(SessionRestored{.session = named,
                            .tenant = test::kTenant,
                            .resume_hash = Token{1, 1},
                            .epoch = 1,
                            .grant = 1,
                            .recoverable = true,
                            .snapshot_root = "root",
                            .snapshot_seq = 2,
                            .name = "run7"});
  next.Enter(1, "run7");
  next.Tell(ExecutorAttached{named, WallTime{}});
  ASSERT_NE(next.Get<Live>(), nullptr);
  EXPECT_EQ(next.Get<Live>()->snapshot_root, "root");
}

TEST(GatewayCoreNames, AnAccountEndsItsSession) {
  NamesWorld w;
  const SessionId id = w.LiveAs(1, "run7");
  EXPECT_EQ(w.core.FindNamed(test::kTenant, "run7"), id);
  w.Tell(EndSession{id});
  ASSERT_NE(w.EndOf(1), nullptr);
  EXPECT_TRUE(absl::IsCancelled(w.EndOf(1)->why));
  EXPECT_FALSE(w.core.Has(id));
  w.Tell(EndSession{id});  // twice
}

// ---- forks --------------------------------------------------------------------------------------

TEST(GatewayCoreNames, AForkBeginsWithTheSnapshot_OnceItHasWhatIsAsked) {
  NamesWorld w(2);
  const SessionId parent = w.LiveAs(1, "run7");
  w.Fork(2, "run7", 9);
  EXPECT_NE(w.Get<RequestSnapshot>(), nullptr);
  EXPECT_FALSE(w.core.Has({0, 2})) << "nothing is placed before there is a snapshot";
  w.Tell(SnapshotKept{parent, "early", 5});
  EXPECT_EQ(w.Get<ShareSnapshot>(), nullptr);
  w.Tell(SnapshotKept{parent, "root", 9});
  ASSERT_NE(w.Get<ShareSnapshot>(), nullptr);
  EXPECT_EQ(w.Get<ShareSnapshot>()->root, "root");
  w.Tell(SnapshotKept{parent, "later", 12});
  w.Tell(SnapshotShared{ConnId{2}, absl::OkStatus()});
  ASSERT_NE(w.Get<Assign>(), nullptr);
  w.Tell(ExecutorAttached{{0, 2}, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->snapshot_root, "root");
  EXPECT_TRUE(w.Get<Live>()->recoverable);
  // Each goes its way.
  w.Tell(ClientClosed{ConnId{1}, absl::OkStatus()});
  EXPECT_TRUE(w.core.IsLive({0, 2}, ConnId{2}, 1));
}

TEST(GatewayCoreNames, AForkThatWaits_CountsAsASession) {
  NamesWorld w(4, /*sessions_max=*/2);
  const SessionId parent = w.LiveAs(1, "run7");
  w.Fork(2, "run7", 9);
  EXPECT_EQ(w.EndOf(2), nullptr);
  w.Fork(3, "run7", 9);
  ASSERT_NE(w.EndOf(3), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(w.EndOf(3)->why));
  w.Tell(w.OpenOf(4, ""));
  ASSERT_NE(w.EndOf(4), nullptr);
  w.Tell(SnapshotKept{parent, "root", 9});
  w.Tell(SnapshotShared{ConnId{2}, absl::OkStatus()});
  EXPECT_TRUE(w.core.Has({0, 2}));
  EXPECT_EQ(w.core.session_count(), 2u);
}

TEST(GatewayCoreNames, AStateHasOneName_ForPeopleAndForOperators) {
  NamesWorld w;
  const SessionId id = w.LiveAs(1, "run7");
  for (const bool busy : {true, false}) {
    w.Tell(SessionProgress{id, busy, 5});
    EXPECT_EQ(w.StateOf(id), busy ? "running" : "idle");
    ASSERT_EQ(w.core.Look(MonoTime{w.now_ns}).sessions.size(), 1u);
    EXPECT_EQ(w.core.Look(MonoTime{w.now_ns}).sessions[0].state, w.StateOf(id));
  }
}

TEST(GatewayCoreNames, AForkWhoseBlobsAreGoneTakesTheLaterSnapshot) {
  NamesWorld w(2);
  const SessionId parent = w.LiveAs(1, "run7");
  w.Tell(SnapshotKept{parent, "root", 9});
  w.Fork(2, "run7", 9);
  w.Tell(SnapshotKept{parent, "later", 12});
  w.Tell(SnapshotShared{ConnId{2}, absl::NotFoundError("replaced")});
  w.After(0.2);
  ASSERT_NE(w.Get<ShareSnapshot>(), nullptr);
  EXPECT_EQ(w.Get<ShareSnapshot>()->root, "later");
}

TEST(GatewayCoreNames, AForkEndsWithItsClientItsParentOrItsTime) {
  {
    NamesWorld w(2);
    const SessionId parent = w.LiveAs(1, "run7");
    w.Fork(2, "run7", 9);
    w.Tell(ClientGone{ConnId{2}});
    w.Tell(SnapshotKept{parent, "root", 9});
    EXPECT_EQ(w.Get<ShareSnapshot>(), nullptr);
    w.Tell(SnapshotShared{ConnId{2}, absl::OkStatus()});  // was on its way
    EXPECT_FALSE(w.core.Has({0, 2}));
  }
  {
    NamesWorld w(2);
    w.LiveAs(1, "run7");
    w.Fork(2, "run7", 9);
    w.Tell(ClientClosed{ConnId{1}, absl::OkStatus()});
    w.After(0.2);
    ASSERT_NE(w.EndOf(2), nullptr);
    EXPECT_TRUE(absl::IsNotFound(w.EndOf(2)->why));
  }
  {
    NamesWorld w(2);
    const SessionId parent = w.LiveAs(1, "run7");
    w.Fork(2, "run7", 9);
    w.Pass(130, {WorkerId{1}}, {parent});
    bool refused = false;
    for (const Action& action : w.history)
      if (const auto* end = std::get_if<EndClient>(&action); end != nullptr && end->conn.value == 2)
        refused = absl::IsUnavailable(end->why);
    EXPECT_TRUE(refused);
  }
}

TEST(GatewayCoreNames, WithoutSnapshotsThereIsNoFork) {
  test::World plain;
  plain.Join(1, 2);
  plain.OpenLive(1);
  ClientOpen open{ConnId{2}, test::kTenant, 1, SessionId{0, 2}, Token{1, 2}, WallTime{}};
  open.fork_of = SessionId{0, 1}.Hex();
  plain.Tell(open);
  ASSERT_NE(plain.Get<EndClient>(), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(plain.Get<EndClient>()->why));
}

}  // namespace
}  // namespace outboard::gateway
