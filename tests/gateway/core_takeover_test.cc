// A session that holds a device, and a client with another key that enters it: G20, and who pays.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/gateway/unpaid_world.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::UnpaidWorld;

struct KeysWorld : UnpaidWorld {
  explicit KeysWorld(bool recovers = true) : UnpaidWorld(/*exclusive=*/false, recovers) {
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

TEST(CoreTakeover, ASessionThatAnotherKeyTakesOver_IsThatKeysFromThenOn) {
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

TEST(CoreTakeover, AKeyThatCannotPay_TakesNothingOver) {
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
TEST(CoreTakeover, ACapOfTheSession_CountsOnceItsClientIsIn) {
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

TEST(CoreTakeover, WithTheSameKey_ASessionIsTakenOverAtOnce) {
  KeysWorld w;
  w.Attach(2, "first");
  EXPECT_EQ(w.Get<TakeHold>(), nullptr);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
}

// As of a client with the session's token and another key.
TEST(CoreTakeover, AResumeWithAnotherKey_IsPaidForByIt) {
  KeysWorld w;
  w.Tell(ClientGone{ConnId{1}});
  w.Tell(ClientResume{ConnId{2}, kTenant, Token{1, 1}, {}, "second"});
  EXPECT_EQ(w.Get<Live>(), nullptr);
  w.Answer(w.Asked());
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<BeginLease>()->key_id, "second");
}

TEST(CoreTakeover, ATakeover_EndsWithWhoeverWanted) {
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
TEST(CoreTakeover, ATakeover_EndsWithAClientOfTheSessionsOwnKey) {
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
TEST(CoreTakeover, ATakeover_OfAGatewayThatStops_LeavesTheSessionAsItIs) {
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
TEST(CoreTakeover, TwoKeysThatTakeTurns_HaveADeviceForTenSecondsEach) {
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

// It hangs by a client that is gone, and by a disk that is slow; not by nobody who pays.
TEST(CoreTakeover, ASessionThatAKeyWaitsFor_IsNotParkedMeanwhile) {
  KeysWorld w;
  w.asks_disk = true;
  w.Attach(2, "second");
  w.Answer(w.Asked());
  w.Tell(ClientGone{ConnId{2}});
  w.Attach(3, "third");
  w.Answer(w.Asked());
  w.Beats(12, w.id, false, 2);
  EXPECT_EQ(w.core.devices_busy(), 1u);
  w.Tell(LeaseWritten{{w.id, 2}});
  w.Tell(Tick{});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{3});
}

// Its executor is lost meanwhile: whoever wanted it has it from there on.
TEST(CoreTakeover, ATakeover_OfASessionThatLosesItsDevice_BeginsWithTheNextOne) {
  KeysWorld w;
  w.Attach(2, "second");
  const TakeHold before = w.Asked();
  w.Tell(ExecutorGone{w.id, absl::UnavailableError("signal 9"), true});
  EXPECT_TRUE(w.IsGivenBack({w.id, 2}));
  EXPECT_NE(w.Asked().number, before.number);
  EXPECT_EQ(w.Asked().request.key_id, "second");
  EXPECT_EQ(w.EndOf(1), nullptr) << "it starts for that one meanwhile";
  w.Answer(w.Asked());
  EXPECT_NE(w.EndOf(1), nullptr);
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

// ---- of a session that starts -------------------------------------------------------------------

// Anew, since it lost its executor: it has a device, and no lease yet.
struct StartingWorld : KeysWorld {
  StartingWorld() {
    Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true});
    own = Asked();
    EXPECT_EQ(own.request.key_id, "first");
    EXPECT_EQ(own.request.lease, (LeaseId{id, 2}));
    history.clear();
  }
  TakeHold own;  // what the client that it starts for needs
};

TEST(CoreTakeover, ASessionThatStarts_IsTakenOverOnceTheKeyCanPay) {
  for (const bool own_is_funded : {false, true}) {
    StartingWorld w;
    if (own_is_funded) w.Answer(w.own);
    w.Attach(2, "second");
    EXPECT_EQ(w.EndOf(1), nullptr) << "not before its key pays";
    const TakeHold asked = w.Asked();
    EXPECT_EQ(asked.request.key_id, "second");
    EXPECT_EQ(asked.request.lease, (LeaseId{w.id, 3})) << "the other one's may begin meanwhile";
    EXPECT_TRUE(asked.request.is_tentative);
    w.Answer(asked);
    ASSERT_NE(w.EndOf(1), nullptr);
    EXPECT_TRUE(absl::IsAborted(w.EndOf(1)->why));
    EXPECT_TRUE(w.IsGivenBack({w.id, 2}));
    EXPECT_TRUE(w.IsGivenBack({w.id, 3}));
    const TakeHold again = w.Asked();
    EXPECT_EQ(again.request.lease, (LeaseId{w.id, 2})) << "leases are numbered without gaps";
    EXPECT_EQ(again.request.key_id, "second");
    EXPECT_FALSE(again.request.is_tentative);
    w.Answer(w.own);
    w.Tell(ExecutorAttached{w.id, WallTime{}});
    EXPECT_EQ(w.Get<Live>(), nullptr) << "what was held for the other one is of the past";
    w.Answer(again);
    ASSERT_NE(w.Get<Live>(), nullptr);
    EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
    EXPECT_EQ(w.Get<BeginLease>()->key_id, "second");
    EXPECT_EQ(w.Get<BeginLease>()->lease.grant, 2u);
  }
}

TEST(CoreTakeover, ASessionThatStarts_StaysWithItsClient_WhereTheOtherKeyCannotPay) {
  StartingWorld w;
  w.Answer(w.own);
  w.Attach(2, "second", MicroUsd{5});
  w.Answer(w.Asked(), 0, absl::ResourceExhaustedError("the cap of this key is reached"));
  ASSERT_NE(w.EndOf(2), nullptr);
  EXPECT_TRUE(w.IsGivenBack({w.id, 3}));
  EXPECT_EQ(w.EndOf(1), nullptr);
  w.Tell(ExecutorAttached{w.id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{1});
  EXPECT_EQ(w.Get<BeginLease>()->key_id, "first");
}

// A hold is waited for since it was asked for, not since the session began to start.
TEST(CoreTakeover, ASessionThatStarts_WaitsForTheOtherKeysHoldAsLongAsForItsOwn) {
  StartingWorld w;
  w.Tell(ExecutorAttached{w.id, WallTime{}});
  w.Beats(29, w.id, false, 0);
  w.Attach(2, "second");
  w.Answer(w.Asked());
  const TakeHold again = w.Asked();
  w.Beats(20, w.id, false, 0);
  EXPECT_EQ(w.EndOf(2), nullptr);
  w.Answer(again);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
}

// It has started before the other key's hold is there: then it is one that runs.
TEST(CoreTakeover, ASessionThatHasStartedMeanwhile_ChangesHandsWhenItsLeaseIsOldEnough) {
  StartingWorld w;
  w.Answer(w.own);
  w.Attach(2, "second");
  w.Tell(ExecutorAttached{w.id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{1});
  w.Answer(w.Asked());
  w.Beats(9.8, w.id, true, 2);
  EXPECT_EQ(w.EndOf(1), nullptr);
  w.Beat(w.id, true, 2);
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
  EXPECT_EQ(w.Get<BeginLease>()->lease.grant, 3u);
}

// Its own client has no money: it stops, and whoever waits enters what is left of it.
TEST(CoreTakeover, ASessionWhoseStartIsNotPaidFor_IsEnteredWhereItStops) {
  StartingWorld w;
  w.Attach(2, "second");
  w.Answer(w.own, 0, absl::FailedPreconditionError("no credit"));
  ASSERT_NE(w.EndOf(1), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(w.EndOf(1)->why));
  EXPECT_EQ(w.EndOf(2), nullptr);
  EXPECT_EQ(w.Asked().request.key_id, "second");
  EXPECT_EQ(w.Asked().request.lease, (LeaseId{w.id, 2}));
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{w.id, WallTime{}});
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
}

// ---- of a session in other states ---------------------------------------------------------------

// Its steps are in flight, and no more could be held for them with the key that it had.
TEST(CoreTakeover, ASessionThatStops_GoesOnWithTheOtherKey) {
  KeysWorld w;
  w.Beats(24, w.id, true, 2);
  const absl::Status cap = absl::ResourceExhaustedError("the cap");
  w.Answer(w.Asked(), kHoldMs, cap);
  for (int i = 0; i < 150 && w.EndOf(1) == nullptr; ++i) w.Beat(w.id, true, 2);
  ASSERT_NE(w.EndOf(1), nullptr);
  EXPECT_EQ(w.EndOf(1)->why, cap);
  const int64_t before_ms = w.core.BillOf(w.id).ms;
  w.Attach(2, "second");
  w.Beats(1, w.id, true, 2);
  EXPECT_EQ(w.core.BillOf(w.id).ms, before_ms + 1000) << "at the first one's expense";
  w.Answer(w.Asked());
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
  EXPECT_EQ(w.Get<BeginLease>()->key_id, "second");
  w.Beats(20, w.id, true, 3);
  EXPECT_EQ(w.core.BillOf(w.id).ms, before_ms + 21'000);
  EXPECT_EQ(w.core.devices_busy(), 1u);
}

// The key that has it cannot pay any more: it takes no turns, so nobody waits for ten seconds.
TEST(CoreTakeover, ASessionThatStops_IsTakenOverAtOnce_HoweverYoungItsLeaseIs) {
  const absl::Status cap = absl::ResourceExhaustedError("the cap");
  for (const bool recovers : {false, true}) {
    for (const bool waits : {false, true}) {
      for (const bool busy : {false, true}) {
        KeysWorld w(recovers);
        w.Attach(2, "second");
        w.Answer(w.Asked(), 8000, cap);
        ASSERT_NE(w.Get<Live>(), nullptr);
        w.Answer(w.Asked(), 8000, cap);
        if (waits) {
          w.Attach(3, "third");
          w.Answer(w.Asked());
          ASSERT_EQ(w.Get<Live>(), nullptr);
        }
        bool is_stopped = false;
        for (int i = 0; i < 45 && !is_stopped; ++i) {
          w.Beat(w.id, true, 2);
          is_stopped = w.EndOf(2) != nullptr;
          if (w.Get<TakeHold>() != nullptr) w.Answer(w.Asked(), 8000, cap);
        }
        ASSERT_TRUE(is_stopped);
        if (!waits) {
          w.Attach(3, "third");
          w.Answer(w.Asked());
        } else {
          w.Beat(w.id, busy, 2);
        }
        ASSERT_NE(w.Get<Live>(), nullptr) << recovers << waits << busy;
        EXPECT_EQ(w.Get<Live>()->conn, ConnId{3});
        EXPECT_EQ(w.Get<BeginLease>()->key_id, "third");
        w.Beats(15, w.id, true, 3);
        EXPECT_EQ(w.core.devices_busy(), 1u);
      }
    }
  }
}

// What the key before had held is the account's again: the one that took over has what is there
// now, and not what was there while both were held.
TEST(CoreTakeover, AKeyForWhichLittleWasLeft_AsksForMoreOnceItIsIn) {
  KeysWorld w;
  w.Attach(2, "second");
  const TakeHold scarce = w.Asked();
  w.Answer(scarce, 1000, absl::FailedPreconditionError("no credit"));
  ASSERT_NE(w.Get<Live>(), nullptr);
  ASSERT_NE(w.Asked().number, scarce.number);
  EXPECT_EQ(w.Asked().request.key_id, "second");
  EXPECT_EQ(w.Asked().request.lease, scarce.request.lease);
  EXPECT_EQ(w.Asked().request.to_ms, kHoldMs);
  EXPECT_FALSE(w.Asked().request.is_tentative);
  EXPECT_TRUE(w.IsGivenBack({w.id, 1}));
  // A ledger that takes its time stops nobody.
  for (int i = 0; i < 5; ++i) {
    w.Beat(w.id, true, 3);
    EXPECT_EQ(w.EndOf(2), nullptr);
  }
  w.Answer(w.Asked());
  w.Beats(20, w.id, true, 3);
  EXPECT_EQ(w.core.devices_busy(), 1u);
  EXPECT_EQ(w.core.BillOf(w.id).ms, 11'000 + 21'000);
}

// What it repeats after a fault of ours is free for whoever resumes it. Another client repeats
// nothing.
TEST(CoreTakeover, ASessionThatReplays_StaysFreeForAResumeAlone) {
  for (const bool by_name : {false, true}) {
    KeysWorld w;
    w.Beats(20, w.id, true, 100);
    w.Tell(ExecutorGone{w.id, absl::UnavailableError("signal 9"), true});
    w.Answer(w.Asked());
    w.Tell(ExecutorAttached{w.id, WallTime{}});
    w.Beats(11, w.id, true, 20);
    const int64_t before_ms = w.core.BillOf(w.id).ms;
    EXPECT_EQ(before_ms, 31'000);
    if (by_name)
      w.Attach(2, "second");
    else
      w.Tell(ClientResume{ConnId{2}, kTenant, Token{1, 1}, {}, "second"});
    w.Answer(w.Asked());
    ASSERT_NE(w.Get<Live>(), nullptr);
    EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
    EXPECT_EQ(w.Get<BeginLease>()->key_id, "second");
    w.Beats(5, w.id, true, 50);
    EXPECT_EQ(w.core.BillOf(w.id).ms, before_ms + (by_name ? 5000 : 0));
    w.Beats(5, w.id, true, 101);
    w.Beats(5, w.id, true, 102);
    EXPECT_GE(w.core.BillOf(w.id).ms, before_ms + (by_name ? 14'000 : 9'000));
  }
}

// A device that costs less while it has no work.
struct HeldKeysWorld : UnpaidWorld {
  HeldKeysWorld() {
    DeviceSlot slot;
    slot.price_class = "small";
    slot.price_per_hour = {3'600'000};
    slot.idle_prices = IdlePrices{.held = MicroUsd{360'000}};
    Tell(WorkerJoined{WorkerId{2}, "v#", {slot}, "node2", {}});
    Tell(WorkerGone{WorkerId{1}});
    ClientOpen open{ConnId{1}, kTenant, 1, id, Token{1, 1}, WallTime{}};
    open.key_id = "first";
    open.name = "n";
    Tell(open);
    Answer(Asked());
    Tell(ExecutorAttached{id, WallTime{}});
    EXPECT_NE(Get<Live>(), nullptr);
    Pace(4, 1);
    for (int i = 0; i < 10 && use() != UseState::kHeld; ++i) Pace(1, 1);
    EXPECT_EQ(use(), UseState::kHeld);
    Answer(Asked());
  }
  void Pace(double seconds, uint64_t done_seq, bool busy = false) {
    for (double t = 0.1; t < seconds; t += 0.2) {
      Tell(WorkerHeartbeat{WorkerId{2}, {id}});
      Beat(id, busy, done_seq);
    }
  }
  UseState use() const {
    UseState last = UseState::kStored;
    for (const Action& action : history)
      if (const auto* lease = std::get_if<BeginLease>(&action)) last = lease->use;
    return last;
  }
  void Attach(uint64_t conn, const char* key) {
    ClientAttach attach{ConnId{conn}, kTenant, "n", Token{1, conn}, WallTime{}};
    attach.key_id = key;
    Tell(attach);
  }
  const SessionId id{0, 1};
};

TEST(CoreTakeover, ASessionThatIsHeld_RunsOnTheOtherKey) {
  HeldKeysWorld w;
  w.Pace(11, 1);
  w.Attach(2, "second");
  EXPECT_EQ(w.Asked().request.prices_per_hour, std::vector<MicroUsd>{MicroUsd{3'600'000}});
  w.Answer(w.Asked());
  ASSERT_NE(w.Get<Live>(), nullptr);
  ASSERT_NE(w.Get<BeginLease>(), nullptr);
  EXPECT_EQ(w.Get<BeginLease>()->use, UseState::kRun);
  EXPECT_EQ(w.Get<BeginLease>()->key_id, "second");
}

// Its key has had it since it went live, at whatever price.
TEST(CoreTakeover, ASessionThatIsHeld_ChangesHandsTenSecondsAfterItsKeyHasIt) {
  HeldKeysWorld w;
  w.Attach(2, "second");
  w.Answer(w.Asked());
  while (w.now_ns < 10 * kSecondNs) {
    ASSERT_EQ(w.Get<Live>(), nullptr);
    w.Pace(0.2, 1);
  }
  ASSERT_NE(w.Get<Live>(), nullptr);
  EXPECT_EQ(w.Get<Live>()->conn, ConnId{2});
}

// Work has its price, whoever waits.
TEST(CoreTakeover, ASessionThatIsHeld_AndHasWorkWhileAKeyWaits_IsChargedForIt) {
  HeldKeysWorld w;
  w.Attach(2, "second");
  w.Answer(w.Asked());
  EXPECT_EQ(w.use(), UseState::kHeld) << "its key has not had it for ten seconds";
  w.Pace(0.2, 2, /*busy=*/true);
  EXPECT_EQ(w.use(), UseState::kRun);
  std::vector<TakeHold> asked;  // of the session for its new lease, and once more of the other key
  for (const Action& action : w.actions)
    if (const auto* hold = std::get_if<TakeHold>(&action)) asked.push_back(*hold);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].request.key_id, "first");
  EXPECT_EQ(asked[1].request.key_id, "second");
  EXPECT_EQ(asked[1].request.lease.grant, asked[0].request.lease.grant + 1);
  for (const TakeHold& hold : asked) w.Answer(hold);
  w.Pace(11, 3, /*busy=*/true);
  const auto is_second = [](const Action& action) {
    const auto* live = std::get_if<Live>(&action);
    return live != nullptr && live->conn == ConnId{2};
  };
  EXPECT_TRUE(std::any_of(w.history.begin(), w.history.end(), is_second));
}

// A ledger that does not answer keeps nobody waiting for ever.
TEST(CoreTakeover, G7ATakeover_HasAnEnd) {
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
