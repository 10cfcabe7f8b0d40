// What nobody may have for nothing: a device without a client, work that is repeated by one's own
// fault, and a device on another key's cap.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "telemetry/metric.h"
#include "tests/gateway/core_world.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::World;

CoreOptions Recoverable(bool recovers = true) {
  CoreOptions options;
  options.snapshot_ns = recovers ? 30 * kSecondNs : 0;
  return options;
}

struct UnpaidWorld : World {
  explicit UnpaidWorld(bool exclusive = false, bool recovers = true)
      : World(Recoverable(recovers)) {
    WorkerJoined joined{WorkerId{1}, "w#", std::vector<DeviceSlot>(1), "node1", {}};
    joined.exclusive = exclusive;
    joined.snapshots_when_asked = true;
    Tell(joined);
    asks_money = true;
  }
  TakeHold Asked() {
    for (auto action = history.rbegin(); action != history.rend(); ++action)
      if (const auto* hold = std::get_if<TakeHold>(&*action)) return *hold;
    ADD_FAILURE() << "nobody asked for a hold";
    return {};
  }
  void Answer(const TakeHold& asked, int64_t funded_ms = kHoldMs, const absl::Status& why = {}) {
    Tell(HoldAnswered{asked.request.lease.session, asked.number, {funded_ms, why}});
  }
  SessionId OpenFunded(uint64_t conn) {
    const SessionId id = Open(conn);
    Answer(Asked());
    Tell(ExecutorAttached{id, WallTime{}});
    EXPECT_NE(Get<Live>(), nullptr);
    return id;
  }
  // As its process has it: a heartbeat and a tick each 200 ms.
  void Beat(const SessionId& id, bool busy, uint64_t done_seq) {
    now_ns += kSecondNs / 5;
    Tell(WorkerHeartbeat{WorkerId{1}, {id}});
    Tell(SessionProgress{id, busy, done_seq});
    Tell(Tick{});
  }
  void Beats(double seconds, const SessionId& id, bool busy, uint64_t done_seq) {
    for (double t = 0.1; t < seconds; t += 0.2) Beat(id, busy, done_seq);
  }
};

// ---- a device without a client ------------------------------------------------------------------

// Its start has gone on, and the device stays until it has been idle for ten seconds: again and
// again, that was nine tenths of a device for nothing.
TEST(CoreUnpaid, AClientThatLeavesWhileItsSessionStarts_PaysForTheDeviceItKeeps) {
  for (const bool exclusive : {false, true}) {
    UnpaidWorld w(exclusive);
    const SessionId id = w.OpenFunded(1);
    w.Tell(SessionProgress{id, false, 1});
    w.Tell(SnapshotKept{id, "root", 1});
    w.Tell(ClientGone{ConnId{1}});
    w.Beats(12, id, false, 1);
    ASSERT_EQ(w.core.devices_busy(), 0u) << exclusive;
    const int64_t before_ms = w.posted_ms;
    int64_t busy_ms = 0;
    for (uint64_t conn = 2; conn < 32; ++conn) {
      w.Resume(conn, 1);
      w.Tell(ClientGone{ConnId{conn}});
      w.Answer(w.Asked());
      if (exclusive) w.Tell(ExecutorAttached{id, WallTime{}});
      EXPECT_EQ(w.core.CountAll(MonoTime{w.now_ns})
                    .by_state[static_cast<size_t>(telemetry::SessionStateLabel::kDetached)],
                1u);
      while (w.core.devices_busy() > 0) {
        w.Beat(id, false, 1);
        busy_ms += 200;
      }
    }
    EXPECT_GE(busy_ms, 30 * 10'000);
    EXPECT_NEAR(static_cast<double>(w.posted_ms - before_ms), static_cast<double>(busy_ms),
                30 * 200.0)
        << exclusive;
    w.Resume(99, 1);  // and it can go on
    w.Answer(w.Asked());
    if (exclusive) w.Tell(ExecutorAttached{id, WallTime{}});
    EXPECT_NE(w.Get<Live>(), nullptr);
  }
}

// What it took to start was ours to give, and a start that fails costs nothing.
TEST(CoreUnpaid, AStartThatFails_IsFree_WhetherItsClientWaitsOrHasLeft) {
  for (const bool leaves : {false, true}) {
    UnpaidWorld w(/*exclusive=*/true);
    const SessionId id = w.OpenFunded(1);
    w.Tell(SnapshotKept{id, "root", 1});
    w.Tell(ClientGone{ConnId{1}});
    w.Beats(12, id, false, 1);
    const int64_t before_ms = w.core.BillOf(id).ms;
    w.Resume(2, 1);
    w.Answer(w.Asked());
    w.Beats(5, id, false, 0);
    if (leaves) w.Tell(ClientGone{ConnId{2}});
    w.Beats(5, id, false, 0);
    w.Tell(ExecutorGone{id, absl::UnavailableError("it cannot be started"), true});
    EXPECT_EQ(w.core.devices_busy(), leaves ? 0u : 1u);
    EXPECT_EQ(w.core.BillOf(id).ms, before_ms);
  }
}

// Nothing can be held: the device is given back, and the session kept.
TEST(CoreUnpaid, AClientThatLeavesWhileItsSessionStarts_WithoutMoney_KeepsNoDevice) {
  UnpaidWorld w;
  const SessionId id = w.OpenFunded(1);
  w.Tell(ClientGone{ConnId{1}});
  w.Beats(12, id, false, 0);
  w.Resume(2, 1);
  w.Tell(ClientGone{ConnId{2}});
  w.Answer(w.Asked(), 0, absl::FailedPreconditionError("no credit"));
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_TRUE(w.core.Has(id));
}

// An executor that outlived its worker's connection, and starts for a client that has yet to hear:
// ten seconds are free, whether it has work, or is a process that cannot leave its device.
TEST(CoreUnpaid, AnExecutorThatIsAdopted_AndNobodyComesFor_IsFreeForTenSeconds) {
  for (const bool exclusive : {false, true}) {
    UnpaidWorld w(exclusive, /*recovers=*/!exclusive);
    const SessionId id = w.OpenFunded(1);
    w.Beats(3, id, true, 1);
    w.Tell(WorkerGone{WorkerId{1}});
    w.Tell(ClientGone{ConnId{1}});
    const int64_t before_ms = w.core.BillOf(id).ms;
    WorkerJoined again{WorkerId{2}, "w#", std::vector<DeviceSlot>(1), "node1", {{id, {0}}}};
    again.exclusive = exclusive;
    again.snapshots_when_asked = true;
    w.Tell(again);
    w.Answer(w.Asked());
    w.Tell(ExecutorAttached{id, WallTime{}});
    const auto beats = [&](double seconds) {
      for (double t = 0.1; t < seconds; t += 0.2) {
        w.Tell(WorkerHeartbeat{WorkerId{2}, {id}});
        w.Beat(id, /*busy=*/!exclusive, 2);
      }
    };
    beats(9.8);
    EXPECT_EQ(w.core.BillOf(id).ms, before_ms) << exclusive;
    beats(20.2);
    ASSERT_EQ(w.core.devices_busy(), 1u);
    EXPECT_NEAR(static_cast<double>(w.core.BillOf(id).ms - before_ms), 20'000.0, 600.0)
        << exclusive;
  }
}

// ---- work that is repeated ----------------------------------------------------------------------

// A session that has done 100 items, of which no snapshot holds any, and whose executor ends.
// Returns what its first five seconds of work behind that cost.
int64_t CostOfRepeating(const ExecutorGone& end) {
  UnpaidWorld w;
  const SessionId id = w.OpenFunded(1);
  w.Beats(20, id, true, 100);
  ExecutorGone event = end;
  event.session = id;
  w.Tell(event);
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{id, WallTime{}});
  EXPECT_NE(w.Get<Live>(), nullptr);
  const int64_t before_ms = w.core.BillOf(id).ms;
  w.Beats(5, id, true, 50);
  return w.core.BillOf(id).ms - before_ms;
}

TEST(CoreUnpaid, WhatIsRepeated_IsFreeAfterAFaultOfOurs_AndNotAfterOnesOwn) {
  const auto late = absl::DeadlineExceededError("kernel k was not done after 30 s");
  const auto broken = absl::InternalError("CUDA: a GPU is lost to this process");
  EXPECT_EQ(CostOfRepeating({.why = absl::UnavailableError("signal 9")}), 0);
  EXPECT_EQ(CostOfRepeating({.why = broken, .crashed = false, .once_more = true, .seq = 101}), 0);
  EXPECT_EQ(CostOfRepeating({.why = late, .crashed = false, .once_more = true, .seq = 101}), 5000);
}

// Its client was away while it started: what it repeats is free from the first moment.
TEST(CoreUnpaid, WhatIsRepeated_ByAClientThatWasAway_IsFreeAtOnce) {
  UnpaidWorld w;
  const SessionId id = w.OpenFunded(1);
  w.Beats(20, id, true, 100);
  w.Tell(ClientGone{ConnId{1}});
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true});
  w.Resume(2, 1);
  w.Tell(ClientGone{ConnId{2}});
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Beats(2, id, false, 0);
  const int64_t before_ms = w.core.BillOf(id).ms;
  w.Resume(3, 1);
  ASSERT_NE(w.Get<Live>(), nullptr);
  w.Beats(5, id, true, 50);
  EXPECT_EQ(w.core.BillOf(id).ms, before_ms);
}

// A thousand small items, and one that outlasts what is held: under the numbers of the small ones
// all that its client sent next was free.
TEST(CoreUnpaid, WhatIsRepeated_AfterACapCutItOff_IsCharged) {
  UnpaidWorld w;
  const SessionId id = w.Open(1);
  const absl::Status cap = absl::ResourceExhaustedError("the cap");
  w.Answer(w.Asked(), 2000, cap);
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Beats(12, id, true, 1000);
  ASSERT_EQ(w.core.devices_busy(), 0u);
  ASSERT_TRUE(w.core.Has(id));
  EXPECT_EQ(w.core.BillOf(id).ms, 2000);
  w.Resume(2, 1);
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  w.Beats(10, id, true, 500);
  EXPECT_EQ(w.core.BillOf(id).ms, 12'000);
}

// The bound on what is free is of time, and a bill counts the time of each device.
TEST(CoreUnpaid, WhatIsRepeated_OnSeveralDevices_IsFreeForAsLongAsOnOne) {
  World w(Recoverable());
  WorkerJoined joined{WorkerId{1}, "w#", std::vector<DeviceSlot>(2), "node1", {}};
  joined.serves_groups = joined.has_collectives = joined.groups_recover = true;
  w.Tell(joined);
  const SessionId id{0, 1};
  ClientOpen open{ConnId{1}, kTenant, 2, id, Token{1, 1}, WallTime{}};
  w.Tell(open);
  const auto attach = [&] {
    for (const uint32_t rank : {0u, 1u}) w.Tell(ExecutorAttached{id, WallTime{}, rank});
    ASSERT_NE(w.Get<Live>(), nullptr);
  };
  const auto work = [&](int seconds, uint64_t done_seq) {
    for (int i = 0; i < 5 * seconds; ++i) {
      w.now_ns += kSecondNs / 5;
      w.Tell(WorkerHeartbeat{WorkerId{1}, {id}});
      w.Tell(SessionProgress{id, true, done_seq});
      w.Tell(Tick{});
    }
  };
  attach();
  work(20, 10'000);
  ASSERT_EQ(w.core.BillOf(id).ms, 2 * 20'000);
  w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true});
  attach();
  work(49, 5);
  EXPECT_EQ(w.core.BillOf(id).ms, 2 * 20'000) << "twice 20 s and 10 s are free";
  work(11, 5);
  EXPECT_NEAR(static_cast<double>(w.core.BillOf(id).ms), 2 * 30'000.0, 2 * 200.0);
}

// State that takes longer to upload than its client is waited for: it was put away for nobody's
// sake, and all that its client sent next under the old numbers was free.
TEST(CoreUnpaid, WhatIsRepeated_AfterItsClientLeftItUnsaved_IsCharged) {
  UnpaidWorld w(/*exclusive=*/true);
  const SessionId id = w.OpenFunded(1);
  w.Beats(5, id, false, 100);
  w.Tell(ClientGone{ConnId{1}});
  w.Beats(20, id, false, 100);  // no snapshot comes
  ASSERT_EQ(w.core.devices_busy(), 0u);
  const int64_t before_ms = w.core.BillOf(id).ms;
  w.Resume(2, 1);
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Beats(5, id, true, 50);
  EXPECT_EQ(w.core.BillOf(id).ms, before_ms + 5000);
}

// It was put away for another's sake.
TEST(CoreUnpaid, WhatIsRepeated_AfterItsMemoryWasNeeded_IsFree) {
  UnpaidWorld w;
  w.Tell(WorkerJoined{.worker = WorkerId{2},
                      .name = "v#",
                      .devices = {DeviceSlot{.device_class = "large", .memory_bytes = 1000}},
                      .worker_identity = "node2",
                      .snapshots_when_asked = true});
  const auto open = [&](uint64_t conn) {
    ClientOpen event{ConnId{conn}, kTenant, 1, SessionId{0, conn}, Token{1, conn}, WallTime{}};
    event.device_class = "large";
    w.Tell(event);
    return event.session;
  };
  const auto beats = [&](double seconds, const SessionId& id, bool busy, uint64_t done_seq) {
    for (double t = 0.1; t < seconds; t += 0.2) {
      w.Tell(WorkerHeartbeat{WorkerId{2}, {id}, {900}});
      w.Beat(id, busy, done_seq);
    }
  };
  const SessionId id = open(1);
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{id, WallTime{}});
  beats(5, id, false, 100);
  w.Tell(ClientGone{ConnId{1}});
  beats(12, id, false, 100);  // no snapshot comes
  ASSERT_EQ(w.core.devices_busy(), 0u);
  open(2);
  beats(6, id, false, 100);
  ASSERT_EQ(w.core.devices_busy(), 1u) << "the other has its memory";
  w.Tell(ClientClosed{ConnId{2}, absl::OkStatus()});
  const int64_t before_ms = w.core.BillOf(id).ms;
  ClientResume resume{ConnId{3}, kTenant, Token{1, 1}, {}};
  resume.device_class = "large";
  w.Tell(resume);
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  beats(5, id, true, 50);
  EXPECT_EQ(w.core.BillOf(id).ms, before_ms);
}

// It is parked at once, and has no snapshots: whoever waits may get its memory before it does.
TEST(CoreUnpaid, AStoppedSession_ThatMakesRoomAsItsClientComesBack_IsNoMore) {
  World w;
  w.asks_money = true;
  w.Tell(WorkerJoined{.worker = WorkerId{1},
                      .name = "w#",
                      .devices = {DeviceSlot{.memory_bytes = 1000}},
                      .worker_identity = "node1"});
  const auto asked = [&] { return w.Get<TakeHold>() != nullptr ? *w.Get<TakeHold>() : TakeHold{}; };
  const SessionId id = w.Open(1);
  w.Tell(HoldAnswered{id, asked().number, {2000, absl::ResourceExhaustedError("the cap")}});
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  w.Open(2);  // waits
  for (int i = 0; i < 9; ++i) {
    w.now_ns += kSecondNs / 5;
    w.Tell(WorkerHeartbeat{WorkerId{1}, {id}, {900}});
    w.Tell(SessionProgress{id, true, 5});
    w.Tell(Tick{});
  }
  ASSERT_NE(std::find_if(w.history.begin(), w.history.end(),
                         [](const Action& a) {
                           const auto* end = std::get_if<EndClient>(&a);
                           return end != nullptr && end->conn == ConnId{1};
                         }),
            w.history.end());
  ASSERT_TRUE(w.core.Has(id)) << "its steps are in flight";
  w.Tell(SessionProgress{id, false, 6});
  w.Resume(3, 1);
  EXPECT_FALSE(w.core.Has(id));
  const EndClient* told = nullptr;
  for (const Action& action : w.actions)
    if (const auto* end = std::get_if<EndClient>(&action)) told = end;
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(told->conn, ConnId{3});
  EXPECT_TRUE(absl::IsResourceExhausted(told->why)) << told->why;
  EXPECT_FALSE(told->is_kept);
}

// ---- a device on another key's cap --------------------------------------------------------------

struct KeysWorld : UnpaidWorld {
  KeysWorld() {
    ClientOpen open{ConnId{1}, kTenant, 1, id, Token{1, 1}, WallTime{}};
    open.key_id = "first";
    open.name = "n";
    Tell(open);
    Answer(Asked());
    Tell(ExecutorAttached{id, WallTime{}});
    EXPECT_NE(Get<Live>(), nullptr);
    Beats(11, id, true, 1);
    history.clear();
  }
  void Attach(uint64_t conn, const char* key, std::optional<MicroUsd> max_cost = std::nullopt) {
    ClientAttach attach{ConnId{conn}, kTenant, "n", Token{1, conn}, WallTime{}};
    attach.key_id = key;
    attach.max_cost = max_cost;
    Tell(attach);
  }
  const EndClient* EndOf(uint64_t conn) const {
    for (const Action& action : actions)
      if (const auto* end = std::get_if<EndClient>(&action); end && end->conn == ConnId{conn})
        return end;
    return nullptr;
  }
  bool IsGivenBack(const LeaseId& lease) const {
    return std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
      const auto* end = std::get_if<EndHold>(&action);
      return end != nullptr && end->lease == lease;
    });
  }
  const SessionId id{0, 1};
};

TEST(CoreUnpaid, ASessionThatAnotherKeyTakesOver_IsThatKeysFromThenOn) {
  for (const bool is_left : {false, true}) {
    KeysWorld w;
    if (is_left) w.Tell(ClientGone{ConnId{1}});
    w.Attach(2, "second");
    EXPECT_EQ(w.Get<Live>(), nullptr) << "not before its key pays";
    EXPECT_EQ(w.EndOf(1), nullptr) << "nor is the other one's taken away";
    ASSERT_NE(w.Get<TakeHold>(), nullptr);
    const TakeHold asked = *w.Get<TakeHold>();
    EXPECT_EQ(asked.request.key_id, "second");
    EXPECT_EQ(asked.request.lease, (LeaseId{w.id, 2}));
    w.Beats(1, w.id, true, 2);  // at the first one's expense
    EXPECT_EQ(w.core.BillOf(w.id).ms, 12'000);
    w.Answer(asked);
    ASSERT_NE(w.Get<Live>(), nullptr);
    EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
    EXPECT_EQ(w.EndOf(1) != nullptr, !is_left);
    EXPECT_TRUE(w.IsGivenBack({w.id, 1}));
    EXPECT_FALSE(w.IsGivenBack({w.id, 2}));
    ASSERT_NE(w.Get<BeginLease>(), nullptr);
    EXPECT_EQ(w.Get<BeginLease>()->key_id, "second");
    EXPECT_EQ(w.Get<BeginLease>()->lease.grant, 2u);
    w.Beats(40, w.id, true, 3);
    EXPECT_EQ(w.core.BillOf(w.id).ms, 52'000);
    EXPECT_EQ(w.Asked().request.key_id, "second") << "more is held on it";
    EXPECT_EQ(w.Asked().request.lease.grant, 2u);
  }
}

TEST(CoreUnpaid, AKeyThatCannotPay_TakesNothingOver) {
  KeysWorld w;
  w.Attach(2, "second");
  const absl::Status cap = absl::ResourceExhaustedError("the cap of this key is reached");
  w.Answer(w.Asked(), 0, cap);
  ASSERT_NE(w.EndOf(2), nullptr);
  EXPECT_EQ(w.EndOf(2)->why, cap);
  EXPECT_TRUE(w.EndOf(2)->is_kept);
  EXPECT_TRUE(w.IsGivenBack({w.id, 2}));
  EXPECT_EQ(w.EndOf(1), nullptr) << "who pays goes on";
  w.Beats(40, w.id, true, 2);
  EXPECT_EQ(w.Asked().request.key_id, "first");
  EXPECT_EQ(w.core.BillOf(w.id).ms, 51'000);
}

// A cap that came with a client which is refused, or leaves, is not the session's.
TEST(CoreUnpaid, ACapOfTheSession_CountsOnceItsClientIsIn) {
  for (const bool leaves : {false, true}) {
    KeysWorld w;
    w.Attach(2, "second", MicroUsd{10'000});
    const TakeHold asked = w.Asked();
    EXPECT_EQ(asked.request.session_cap, MicroUsd{10'000});
    EXPECT_TRUE(asked.request.is_tentative);
    if (leaves)
      w.Tell(ClientGone{ConnId{2}});
    else
      w.Answer(asked, 0, absl::ResourceExhaustedError("the cap"));
    w.Beats(40, w.id, true, 2);
    EXPECT_NE(w.Asked().number, asked.number);
    EXPECT_EQ(w.Asked().request.session_cap, std::nullopt);
    EXPECT_FALSE(w.Asked().request.is_tentative);
    w.Answer(w.Asked());
    w.Attach(3, "second", MicroUsd{20'000});
    const TakeHold third = w.Asked();
    w.Answer(third);
    EXPECT_NE(w.Asked().number, third.number) << "it is written at once";
    EXPECT_EQ(w.Asked().request.session_cap, MicroUsd{20'000});
    EXPECT_FALSE(w.Asked().request.is_tentative);
    EXPECT_EQ(w.Asked().request.to_ms, kHoldMs);
  }
}

TEST(CoreUnpaid, WithTheSameKey_ASessionIsTakenOverAtOnce) {
  KeysWorld w;
  w.Attach(2, "first");
  EXPECT_EQ(w.Get<TakeHold>(), nullptr);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
}

// As of a client with the session's token and another key.
TEST(CoreUnpaid, AResumeWithAnotherKey_IsPaidForByIt) {
  KeysWorld w;
  w.Tell(ClientGone{ConnId{1}});
  w.Tell(ClientResume{ConnId{2}, kTenant, Token{1, 1}, {}, "second"});
  EXPECT_EQ(w.Get<Live>(), nullptr);
  w.Answer(w.Asked());
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<BeginLease>()->key_id, "second");
}

TEST(CoreUnpaid, ATakeover_EndsWithWhoeverWanted) {
  KeysWorld w;
  w.Attach(2, "second");
  const TakeHold gone = w.Asked();
  w.Tell(ClientGone{ConnId{2}});
  EXPECT_TRUE(w.IsGivenBack({w.id, 2}));
  w.Answer(gone);
  EXPECT_TRUE(w.actions.empty()) << "it is of the past";
  // Of two that want it the last one counts.
  w.Attach(3, "second");
  const TakeHold third = w.Asked();
  w.Attach(4, "fourth");
  ASSERT_NE(w.EndOf(3), nullptr);
  EXPECT_TRUE(absl::IsAborted(w.EndOf(3)->why));
  w.Answer(third);
  EXPECT_EQ(w.Get<Live>(), nullptr);
  w.Tell(ClientClosed{ConnId{4}, absl::OkStatus()});
  EXPECT_NE(w.EndOf(4), nullptr);
  EXPECT_TRUE(w.core.Has(w.id)) << "it was not its session yet";
  w.Beats(2, w.id, true, 2);
  EXPECT_EQ(w.core.BillOf(w.id).ms, 13'000);
}

// One with the key that the session has enters at once, and comes last all the same: what waited
// would have moved the device to its cap, and left this one at work on it.
TEST(CoreUnpaid, ATakeover_EndsWithAClientOfTheSessionsOwnKey) {
  for (const bool by_name : {false, true}) {
    KeysWorld w;
    if (by_name)
      w.Attach(2, "second");
    else
      w.Tell(ClientResume{ConnId{2}, kTenant, Token{1, 1}, {}, "second"});
    const TakeHold second = w.Asked();
    w.Attach(3, "first");
    ASSERT_NE(w.Get<Live>(), nullptr);
    EXPECT_EQ(w.Get<Live>()->conn, ConnId{3});
    ASSERT_NE(w.EndOf(2), nullptr);
    EXPECT_TRUE(absl::IsAborted(w.EndOf(2)->why));
    EXPECT_TRUE(w.IsGivenBack({w.id, 2}));
    w.Answer(second);
    EXPECT_EQ(w.EndOf(3), nullptr);
    w.Beats(40, w.id, true, 2);
    EXPECT_EQ(w.Asked().request.key_id, "first");
  }
}

// What refuses whoever waited comes before the lease of the other one ends.
TEST(CoreUnpaid, ATakeover_OfAGatewayThatStops_LeavesTheSessionAsItIs) {
  KeysWorld w;
  w.Attach(2, "second");
  w.core.Drain();
  w.Answer(w.Asked());
  ASSERT_NE(w.EndOf(2), nullptr);
  EXPECT_TRUE(absl::IsUnavailable(w.EndOf(2)->why));
  EXPECT_TRUE(w.IsGivenBack({w.id, 2}));
  EXPECT_EQ(w.Get<EndLease>(), nullptr);
  EXPECT_EQ(w.EndOf(1), nullptr);
}

// A lease is free until its row is on disk: two keys that take turns have that moment only now and
// then, and never one lease after another that cost nothing.
TEST(CoreUnpaid, TwoKeysThatTakeTurns_HaveADeviceForTenSecondsEach) {
  KeysWorld w;
  w.asks_disk = true;
  w.Attach(2, "second");
  w.Answer(w.Asked());
  ASSERT_NE(w.Get<Live>(), nullptr);
  w.Attach(3, "first");
  w.Answer(w.Asked());
  EXPECT_EQ(w.Get<Live>(), nullptr);
  w.Beats(12, w.id, true, 2);
  EXPECT_EQ(w.EndOf(2), nullptr) << "not while its lease is not written";
  w.Tell(LeaseWritten{{w.id, 2}});
  w.Tell(Tick{});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{3});
  w.Tell(LeaseWritten{{w.id, 3}});
  w.Attach(4, "second");
  w.Answer(w.Asked());
  for (int i = 0; i < 49; ++i) {
    w.Beat(w.id, true, 3);
    ASSERT_EQ(w.EndOf(3), nullptr) << i;
  }
  w.Beat(w.id, true, 3);
  EXPECT_NE(w.EndOf(3), nullptr);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{4});
  EXPECT_EQ(w.core.BillOf(w.id).ms, 21'000);
}

// Its executor is lost meanwhile: whoever wanted it has it from there on.
TEST(CoreUnpaid, ATakeover_OfASessionThatLosesItsDevice_BeginsWithTheNextOne) {
  KeysWorld w;
  w.Attach(2, "second");
  const TakeHold before = w.Asked();
  w.Tell(ExecutorGone{w.id, absl::UnavailableError("signal 9"), true});
  EXPECT_TRUE(w.IsGivenBack({w.id, 2}));
  EXPECT_NE(w.EndOf(1), nullptr);
  EXPECT_NE(w.Asked().number, before.number);
  EXPECT_EQ(w.Asked().request.key_id, "second");
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{w.id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
  // And of one that ends it hears.
  w.Attach(3, "third");
  w.Tell(ClientClosed{ConnId{2}, absl::OkStatus()});
  ASSERT_NE(w.EndOf(3), nullptr);
  EXPECT_TRUE(absl::IsNotFound(w.EndOf(3)->why));
}

// A ledger that does not answer keeps nobody waiting for ever.
TEST(CoreUnpaid, G7ATakeover_HasAnEnd) {
  KeysWorld w;
  w.Attach(2, "second");
  bool told = false;
  for (int i = 0; i < 160 && !told; ++i) {
    w.Beat(w.id, true, 2);
    told = w.EndOf(2) != nullptr;
  }
  ASSERT_TRUE(told);
  EXPECT_TRUE(absl::IsUnavailable(w.EndOf(2)->why));
  EXPECT_TRUE(w.core.Has(w.id));
}

}  // namespace
}  // namespace outboard::gateway
