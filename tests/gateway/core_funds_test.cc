// Holds in the core (G12): what begins only when it is paid for, what ends when it is not, and what
// is repeated for nothing.
#include <gtest/gtest.h>

#include "gateway/core/core.h"
#include "tests/gateway/core_world.h"

namespace outboard::gateway::test {
namespace {

CoreOptions Recoverable() {
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  return options;
}

const absl::Status kCapped = absl::ResourceExhaustedError("the cap of this session is reached");

struct FundsWorld : World {
  explicit FundsWorld(CoreOptions options = Recoverable()) : World(options) {
    asks_money = true;
    Join(1);
  }
  TakeHold Asked() {
    for (auto action = history.rbegin(); action != history.rend(); ++action)
      if (const auto* hold = std::get_if<TakeHold>(&*action)) return *hold;
    ADD_FAILURE() << "nobody asked for a hold";
    return {};
  }
  void Answer(const TakeHold& asked, int64_t funded_ms, const absl::Status& why = {}) {
    Tell(HoldAnswered{asked.request.lease.session, asked.number, {funded_ms, why}});
  }
  // A live session with so much funded, of which no more can be had.
  SessionId LiveWith(uint64_t conn, int64_t funded_ms, const absl::Status& why) {
    const SessionId id = Open(conn);
    Tell(ExecutorAttached{id, WallTime{}});
    Answer(Asked(), funded_ms, why);
    EXPECT_NE(Get<Live>(), nullptr);
    return id;
  }
  // A heartbeat and a tick each 200 ms, as its process has them.
  template <typename Until>
  bool PassUntil(const SessionId& id, double seconds, bool busy, const Until& until) {
    for (double t = 0; t < seconds; t += 0.2) {
      now_ns += kSecondNs / 5;
      Tell(WorkerHeartbeat{WorkerId{1}, {id}});
      if (core.Has(id)) Tell(SessionProgress{id, busy, 0});
      Tell(Tick{});
      if (until()) return true;
    }
    return false;
  }
};

TEST(CoreFunds, ASessionIsLive_WhenItsExecutorAndItsHoldAreThere) {
  for (const bool hold_first : {true, false}) {
    FundsWorld w;
    const SessionId id = w.Open(1);
    const TakeHold asked = w.Asked();
    EXPECT_EQ(asked.request.to_ms, kHoldMs);
    EXPECT_EQ(asked.request.lease, (LeaseId{id, 1}));
    const auto hold = [&] { w.Answer(asked, kHoldMs); };
    const auto attach = [&] { w.Tell(ExecutorAttached{id, WallTime{}}); };
    hold_first ? hold() : attach();
    EXPECT_EQ(w.Get<Live>(), nullptr);
    hold_first ? attach() : hold();
    EXPECT_NE(w.Get<Live>(), nullptr);
  }
}

// A disk that stands still is our fault: the client cannot work yet, and the worker does not count.
TEST(CoreFunds, ALeaseIsMetered_OnceItsRowIsOnDisk) {
  FundsWorld w;
  w.asks_disk = true;
  const SessionId id = w.Open(1);
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Answer(w.Asked(), kHoldMs);
  const auto pass = [&](double seconds) {
    w.PassUntil(id, seconds, /*busy=*/false, [] { return false; });
  };
  pass(30);
  EXPECT_EQ(w.core.BillOf(id).ms, 0);
  EXPECT_FALSE(w.core.IsWritten({id, 1}));
  w.Tell(LeaseWritten{{id, 2}});
  EXPECT_FALSE(w.core.IsWritten({id, 1})) << "that is another one";
  w.Tell(LeaseWritten{{id, 1}});
  EXPECT_TRUE(w.core.IsWritten({id, 1}));
  pass(7);
  w.Tell(LeaseWritten{{id, 1}});
  pass(7);
  w.Tell(ClientClosed{ConnId{1}});
  EXPECT_NEAR(static_cast<double>(w.posted_ms), 14'000, 1);
}

TEST(CoreFunds, ALeaseThatEndsBeforeItIsWritten_IsFree) {
  FundsWorld w;
  w.asks_disk = true;
  const SessionId id = w.Open(1);
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Answer(w.Asked(), kHoldMs);
  w.PassUntil(id, 5, /*busy=*/true, [] { return false; });
  w.Tell(ClientClosed{ConnId{1}});
  w.Tell(LeaseWritten{{id, 1}});
  EXPECT_EQ(w.posted_ms, 0);
}

TEST(CoreFunds, ARowThatIsNeverWritten_EndsItsSession_AndCostsNothing) {
  FundsWorld w;
  w.asks_disk = true;
  const SessionId id = w.Open(1);
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Answer(w.Asked(), kHoldMs);
  w.now_ns += kSecondNs;
  w.Tell(RowNotWritten{id});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_TRUE(absl::IsInternal(w.Get<EndClient>()->why)) << w.Get<EndClient>()->why;
  EXPECT_EQ(w.Get<EndClient>()->bill.amount, MicroUsd{});
  ASSERT_NE(w.Get<EndHold>(), nullptr);
  EXPECT_EQ(w.Get<EndHold>()->lease, (LeaseId{id, 1}));
  EXPECT_FALSE(w.core.Has(id));
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.posted_ms, 0);
  w.Tell(RowNotWritten{id});
  EXPECT_TRUE(w.actions.empty()) << "its last row";
}

TEST(CoreFunds, ARefusedHold_EndsAnOpening) {
  FundsWorld w;
  const SessionId id = w.Open(1);
  w.Answer(w.Asked(), 0, absl::FailedPreconditionError("no credit"));
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(w.Get<EndClient>()->why));
  EXPECT_FALSE(w.core.Has(id));
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.posted_ms, 0);
}

TEST(CoreFunds, AnAnswerOfAnEarlierPlacement_IsIgnored) {
  FundsWorld w;
  w.Join(2);
  const SessionId id = w.Open(1);
  const TakeHold first = w.Asked();
  w.Tell(ExecutorGone{id, absl::UnavailableError("it crashed")});  // another worker is tried
  w.Tell(ExecutorAttached{id, WallTime{}});
  w.Answer(first, kHoldMs);
  EXPECT_EQ(w.Get<Live>(), nullptr);
  w.Answer(w.Asked(), kHoldMs);
  EXPECT_NE(w.Get<Live>(), nullptr);
}

TEST(CoreFunds, AHoldIsRenewed_BeforeItIsUsedUp) {
  FundsWorld w;
  const SessionId id = w.LiveWith(1, kHoldMs, absl::OkStatus());
  const uint64_t first = w.Asked().number;
  EXPECT_FALSE(w.PassUntil(id, 29, true, [&] { return w.Asked().number != first; }));
  ASSERT_TRUE(w.PassUntil(id, 3, true, [&] { return w.Asked().number != first; }));
  EXPECT_EQ(w.Asked().request.to_ms, 2 * kHoldMs);
  EXPECT_EQ(w.Asked().request.lease, (LeaseId{id, 1}));
  w.Answer(w.Asked(), 2 * kHoldMs);
  const uint64_t second = w.Asked().number;
  EXPECT_FALSE(w.PassUntil(id, 55, true, [&] { return w.Asked().number != second; }));
}

// While the ledger does not answer, nobody is stopped, and nothing is charged beyond the hold.
TEST(CoreFunds, ALedgerThatDoesNotAnswer_CostsUsNotTheClient) {
  FundsWorld w;
  const SessionId id = w.LiveWith(1, kHoldMs, absl::OkStatus());
  EXPECT_FALSE(w.PassUntil(id, 90, true, [&] { return w.Get<EndClient>() != nullptr; }));
  EXPECT_EQ(w.core.BillOf(id).ms, kHoldMs);
  w.Tell(ClientClosed{ConnId{1}, absl::OkStatus()});
  EXPECT_EQ(w.posted_ms, kHoldMs);
}

TEST(CoreFunds, AtACap_TheClientIsToldInTime_AndTheStateIsParked) {
  FundsWorld w;
  const SessionId id = w.LiveWith(1, 30'000, kCapped);
  const auto told = [&] { return w.Get<EndClient>() != nullptr; };
  ASSERT_TRUE(w.PassUntil(id, 30, true, [&] {
    // It asks again and again, in case somebody raises the cap.
    if (const auto* asked = w.Get<TakeHold>()) w.Answer(*asked, 30'000, kCapped);
    return told();
  }));
  EXPECT_EQ(w.Get<EndClient>()->why, kCapped);
  EXPECT_LT(w.core.BillOf(id).ms, 30'000);
  EXPECT_EQ(w.core.devices_busy(), 1u);  // its steps in flight still end
  w.PassUntil(id, 1, true, [] { return false; });
  EXPECT_EQ(w.core.devices_busy(), 1u);
  ASSERT_TRUE(w.PassUntil(id, 1, false, [&] { return w.core.devices_busy() == 0; }));
  EXPECT_TRUE(w.core.Has(id));
  EXPECT_TRUE(w.core.HasSeat(id));  // parked
  EXPECT_NE(w.Get<EndHold>(), nullptr);
  EXPECT_LE(w.posted_ms, 30'000);
  // Days later the client comes back with money.
  for (int hour = 0; hour < 48; ++hour) w.Pass(10, {WorkerId{1}}, {id});
  w.now_ns += 47 * 3600 * kSecondNs;
  w.Tell(WorkerHeartbeat{WorkerId{1}, {id}});
  w.Resume(9, 1);
  w.Answer(w.Asked(), kHoldMs);
  EXPECT_NE(w.Get<Live>(), nullptr);
}

// Its client raises the cap before the steps in flight have ended.
TEST(CoreFunds, AStoppedSession_WithStepsInFlight_GoesOnWhenItIsPaidFor) {
  FundsWorld w;
  const SessionId id = w.LiveWith(1, 30'000, kCapped);
  ASSERT_TRUE(w.PassUntil(id, 30, true, [&] {
    if (const auto* asked = w.Get<TakeHold>()) w.Answer(*asked, 30'000, kCapped);
    return w.Get<EndClient>() != nullptr;
  }));
  w.Resume(9, 1);
  EXPECT_NE(w.Get<Live>(), nullptr);
  ASSERT_TRUE(w.PassUntil(id, 1, true, [&] { return w.Get<TakeHold>() != nullptr; }));
  w.Answer(w.Asked(), 90'000);
  EXPECT_FALSE(w.PassUntil(id, 40, true, [&] { return w.Get<EndClient>() != nullptr; }));
}

TEST(CoreFunds, MoreCreditInTime_GoesOnWithoutAWord) {
  FundsWorld w;
  const SessionId id = w.LiveWith(1, 30'000, kCapped);
  ASSERT_TRUE(w.PassUntil(id, 20, true, [&] { return w.Get<TakeHold>() != nullptr; }));
  w.Answer(w.Asked(), 90'000);
  EXPECT_FALSE(w.PassUntil(id, 50, true, [&] { return w.Get<EndClient>() != nullptr; }));
}

TEST(CoreFunds, AStepThatOutlastsTheHold_GoesBackToTheSnapshot) {
  FundsWorld w;
  const SessionId id = w.LiveWith(1, 20'000, kCapped);
  ASSERT_TRUE(w.PassUntil(id, 25, true, [&] { return w.Get<EndExecutor>() != nullptr; }));
  EXPECT_TRUE(w.core.Has(id));
  EXPECT_FALSE(w.core.HasSeat(id));  // stored
  EXPECT_EQ(w.core.devices_busy(), 0u);
  EXPECT_EQ(w.posted_ms, 20'000);  // not a millisecond beyond
  w.Resume(9, 1);
  w.Answer(w.Asked(), 0, kCapped);
  EXPECT_EQ(w.Get<EndClient>()->why, kCapped);
  EXPECT_TRUE(w.core.Has(id));
}

TEST(CoreFunds, AStepThatOutlastsTheHold_WithoutSnapshots_Ends) {
  FundsWorld w{CoreOptions()};
  const SessionId id = w.LiveWith(1, 20'000, kCapped);
  ASSERT_TRUE(w.PassUntil(id, 25, true, [&] { return !w.core.Has(id); }));
  EXPECT_EQ(w.posted_ms, 20'000);
}

// One restart with another --price changed what running sessions cost.
TEST(CoreFunds, APriceIsFrozen_ForTheSession) {
  FundsWorld w;
  const MicroUsd then{123'456};
  SessionRestored row{.session = {0, 5},
                      .tenant = kTenant,
                      .resume_hash = {1, 5},
                      .epoch = 1,
                      .grant = 1,
                      .worker_identity = "node2",
                      .had_client = true,
                      .recoverable = true};
  row.price_per_hour = then;
  w.Tell(row);
  w.Resume(1, 5);
  w.Join(2, 1, {{row.session, {0}, 1}});
  EXPECT_EQ(w.Asked().request.prices_per_hour, std::vector<MicroUsd>{then});
  w.Answer(w.Asked(), kHoldMs);
  w.Tell(ExecutorAttached{row.session, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->price_per_hour, then);
  ASSERT_NE(w.Get<WriteSession>(), nullptr);
  EXPECT_EQ(w.Get<WriteSession>()->price_per_hour, then);
}

// The gateway is started again, and the worker is back before the client.
TEST(CoreFunds, AKeysCap_CountsBeforeItsClientIsBack) {
  FundsWorld w;
  const SessionRestored row{.session = {0, 5},
                            .tenant = kTenant,
                            .resume_hash = {1, 5},
                            .epoch = 1,
                            .grant = 1,
                            .key_id = "capped",
                            .worker_identity = "node2",
                            .had_client = true,
                            .recoverable = true};
  w.Tell(row);
  w.Join(2, 1, {{row.session, {0}, 1}});
  EXPECT_EQ(w.Asked().request.key_id, "capped");
  w.Answer(w.Asked(), kHoldMs);
  const auto resume = [&](uint64_t conn, const char* key) {
    w.Tell(ClientResume{ConnId{conn}, kTenant, Token{1, 5}, {}, key});
  };
  // With its key the hold is right.
  const uint64_t first = w.Asked().number;
  resume(1, "capped");
  EXPECT_EQ(w.Asked().number, first);
  // Another key pays for itself, before the session is live (core_takeover_test.cc).
  resume(2, "other");
  EXPECT_EQ(w.Asked().request.key_id, "other");
  EXPECT_EQ(w.Asked().request.lease.grant, 3u) << "behind the one that is to begin";
  w.Answer(w.Asked(), kHoldMs);
  EXPECT_EQ(w.Asked().request.key_id, "other");
  EXPECT_EQ(w.Asked().request.lease.grant, 2u);
  w.Tell(ExecutorAttached{row.session, WallTime{}});
  EXPECT_EQ(w.Get<Live>(), nullptr);
  w.Answer(w.Asked(), kHoldMs);
  EXPECT_NE(w.Get<Live>(), nullptr);
}

TEST(CoreFunds, WhatALedgerRefuses_StopsThatAccountAlone) {
  FundsWorld w;
  w.Join(2);
  const TenantId other{8};
  const SessionId mine = w.LiveWith(1, kHoldMs, absl::OkStatus());
  const SessionId theirs = w.Open(2, other);
  w.Tell(ExecutorAttached{theirs, WallTime{}});
  w.Answer(w.Asked(), kHoldMs);
  w.Tell(PostingRefused{kTenant, absl::AlreadyExistsError("overlap")});
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->conn, ConnId{1});
  EXPECT_TRUE(absl::IsInternal(w.Get<EndClient>()->why));
  EXPECT_TRUE(w.core.Has(mine));
  w.After(0.2);
  EXPECT_EQ(w.core.devices_busy(), 1u);  // theirs
  w.Open(3);
  EXPECT_TRUE(absl::IsInternal(w.Get<EndClient>()->why));
  w.Open(4, other);
  EXPECT_NE(w.Get<TakeHold>(), nullptr);
}

// An executor killed at step 140 of 150 made the bill nearly twice as long.
TEST(CoreFunds, WhatIsRepeatedAfterAFaultOfOurs_IsNotCharged) {
  FundsWorld w;
  w.Join(2);
  const SessionId id = w.LiveWith(1, kHoldMs, absl::OkStatus());
  w.Tell(SnapshotKept{id, "root", 10});
  const auto pass = [&](double seconds, WorkerId worker, uint64_t done_seq) {
    for (double t = 0; t < seconds - 0.01; t += 0.2) {
      w.now_ns += kSecondNs / 5;
      w.Tell(WorkerHeartbeat{WorkerId{1}, {id}});
      w.Tell(WorkerHeartbeat{worker, {id}});
      w.Tell(SessionProgress{id, true, done_seq});
      w.Tell(Tick{});
    }
  };
  pass(20, WorkerId{1}, 140);
  EXPECT_EQ(w.core.BillOf(id).ms, 20'000);
  w.Tell(ExecutorGone{id, absl::UnavailableError("killed")});
  w.Answer(w.Asked(), kHoldMs);
  w.Tell(ExecutorAttached{id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  pass(10, WorkerId{2}, 100);
  EXPECT_EQ(w.core.BillOf(id).ms, 20'000);
  pass(0.2, WorkerId{2}, 140);  // the point reached before
  pass(2, WorkerId{2}, 150);
  EXPECT_EQ(w.core.BillOf(id).ms, 22'000);
}

// A client that repeats nothing, or something else for ever, pays again.
TEST(CoreFunds, ReplayForNothing_HasAnEnd) {
  for (const bool busy : {false, true}) {
    FundsWorld w;
    w.Join(2);
    const SessionId id = w.LiveWith(1, kHoldMs, absl::OkStatus());
    w.Tell(SessionProgress{id, true, 50});
    for (int i = 0; i < 5; ++i) {
      w.now_ns += kSecondNs;
      w.Tell(WorkerHeartbeat{WorkerId{1}, {id}});
    }
    w.Tell(ExecutorGone{id, absl::UnavailableError("killed")});
    w.Answer(w.Asked(), kHoldMs);
    w.Tell(ExecutorAttached{id, WallTime{}});
    for (int i = 0; i < 30; ++i) {
      w.now_ns += kSecondNs;
      w.Tell(WorkerHeartbeat{WorkerId{1}, {id}});
      w.Tell(WorkerHeartbeat{WorkerId{2}, {id}});
      w.Tell(SessionProgress{id, busy, 20});
      w.Tell(Tick{});
    }
    EXPECT_GE(w.core.BillOf(id).ms, busy ? 13'000 : 23'000);
  }
}

// A second crash without a snapshot between does not make free what the first one did not.
TEST(CoreFunds, ReplayAfterReplay_IsNotFreeAnew) {
  FundsWorld w;
  w.Join(3);
  const SessionId id = w.LiveWith(1, kHoldMs, absl::OkStatus());
  w.Tell(SessionProgress{id, true, 50});
  const auto pass = [&](int seconds, uint64_t done) {
    for (int i = 0; i < seconds; ++i) {
      w.now_ns += kSecondNs;
      for (uint64_t worker = 1; worker <= 3; ++worker)
        w.Tell(WorkerHeartbeat{WorkerId{worker}, {id}});
      w.Tell(SessionProgress{id, true, done});
      w.Tell(Tick{});
    }
  };
  const auto crash = [&] {
    w.Tell(ExecutorGone{id, absl::UnavailableError("killed")});
    w.Answer(w.Asked(), kHoldMs);
    w.Tell(ExecutorAttached{id, WallTime{}});
  };
  pass(5, 50);
  crash();
  pass(18, 20);  // 2 * 5 + 10 s are free at most; then it reaches the point
  pass(1, 51);
  const int64_t before = w.core.BillOf(id).ms;
  crash();
  pass(10, 20);
  EXPECT_GE(w.core.BillOf(id).ms - before, 5'000);
}

// Its old connection still delivers what was on its way, and is not known to be gone: the device is
// the next lease's, and the session before it pays no more.
TEST(CoreFunds, AWorkerThatJoinsAgain_IsPaidForOnce) {
  World w(Recoverable());
  w.Join(1);
  const SessionId before = w.OpenLive(1);
  w.Pass(3, {WorkerId{1}}, {before});
  w.Join(11);  // the same node
  w.OpenLive(2);
  w.Pass(2, {WorkerId{1}}, {before});
  w.Tell(ClientClosed{ConnId{1}, absl::OkStatus()});
  EXPECT_EQ(w.posted_ms, 3000);
  w.Tell(ClientClosed{ConnId{2}, absl::OkStatus()});
  EXPECT_EQ(w.posted_ms, 5000);
}

}  // namespace
}  // namespace outboard::gateway::test
