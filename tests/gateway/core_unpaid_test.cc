// What nobody may have for nothing: a device without a client, and work that is repeated by one's
// own fault. A device on another key's cap is in core_takeover_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "telemetry/metric.h"
#include "tests/gateway/unpaid_world.h"

namespace outboard::gateway {
namespace {

using test::kTenant;
using test::Recoverable;
using test::UnpaidWorld;
using test::World;

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
  EXPECT_NEAR(static_cast<double>(w.core.BillOf(id).ms), 2 * 30'000.0, 2 * 400.0);
}

// The client leaves before its state is saved, and no other session needs the device's memory. The
// work that it repeats afterwards is charged.
TEST(CoreUnpaid, WhatIsRepeated_AfterItsClientLeftItUnsaved_IsCharged) {
  // Unless our own disk could not keep the snapshot, or could no other.
  enum class Disk { kWorks, kFails, kWorksAgain };
  for (const Disk disk : {Disk::kWorks, Disk::kFails, Disk::kWorksAgain}) {
    UnpaidWorld w(/*exclusive=*/true);
    const SessionId id = w.OpenFunded(1);
    w.Beats(5, id, false, 60);
    if (disk == Disk::kWorksAgain) {
      w.Tell(SnapshotNotKept{id});
      w.Tell(SnapshotKept{id, "root", 60});
    }
    w.Beats(5, id, false, 100);
    w.Tell(ClientGone{ConnId{1}});
    w.Beats(3, id, false, 100);
    if (disk == Disk::kFails) w.Tell(SnapshotNotKept{id});
    w.Beats(20, id, false, 100);  // none comes any more
    ASSERT_EQ(w.core.devices_busy(), 0u);
    const int64_t before_ms = w.core.BillOf(id).ms;
    w.Resume(2, 1);
    w.Answer(w.Asked());
    w.Tell(ExecutorAttached{id, WallTime{}});
    w.Beats(5, id, true, 80);
    EXPECT_EQ(w.core.BillOf(id).ms, before_ms + (disk == Disk::kFails ? 0 : 5000))
        << static_cast<int>(disk);
  }
}

// It began again after a fault of ours, and then nobody held money for it.
TEST(CoreUnpaid, WhatIsRepeated_AfterOurLedgerCouldNotWrite_IsFree) {
  for (const bool cap : {false, true}) {
    UnpaidWorld w(/*exclusive=*/true);
    const SessionId id = w.OpenFunded(1);
    w.Beats(10, id, true, 100);
    w.Tell(WorkerGone{WorkerId{1}});
    WorkerJoined again{WorkerId{2}, "w#", std::vector<DeviceSlot>(1), "node1", {{id, {0}, 1}}};
    again.exclusive = again.snapshots_when_asked = true;
    w.Tell(again);
    w.Tell(ExecutorAttached{id, WallTime{}});
    const auto beats = [&](int count, bool busy, uint64_t done_seq) {
      for (int i = 0; i < count; ++i) {
        w.Beat(id, busy, done_seq);
        w.Tell(WorkerHeartbeat{WorkerId{2}, {id}});
      }
    };
    if (cap)
      w.Answer(w.Asked(), 0, absl::ResourceExhaustedError("the cap"));
    else
      beats(160, false, 100);
    ASSERT_EQ(w.core.devices_busy(), 0u);
    ASSERT_FALSE(w.core.HasSeat(id)) << "stored";
    const int64_t before_ms = w.core.BillOf(id).ms;
    w.Resume(2, 1);
    w.Answer(w.Asked());
    w.Tell(ExecutorAttached{id, WallTime{}});
    ASSERT_NE(w.Get<Live>(), nullptr);
    beats(25, true, 50);
    EXPECT_EQ(w.core.BillOf(id).ms - before_ms, cap ? 5000 : 0);
  }
}

// It was put away for another's sake.
// Returns what is charged for 5 s of repetition after a session, which its client had left, was put
// away for one of `other`.
int64_t ChargedAfterMemoryWasNeededBy(TenantId other) {
  UnpaidWorld w;
  w.Tell(WorkerJoined{.worker = WorkerId{2},
                      .name = "v#",
                      .devices = {DeviceSlot{.hardware_class = "large", .memory_bytes = 1000}},
                      .worker_identity = "node2",
                      .snapshots_when_asked = true});
  const auto open = [&](uint64_t conn, TenantId tenant) {
    ClientOpen event{ConnId{conn}, tenant, 1, SessionId{0, conn}, Token{1, conn}, WallTime{}};
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
  const SessionId id = open(1, kTenant);
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{id, WallTime{}});
  beats(5, id, false, 100);
  w.Tell(ClientGone{ConnId{1}});
  beats(12, id, false, 100);  // no snapshot comes
  EXPECT_EQ(w.core.devices_busy(), 0u);
  open(2, other);
  beats(6, id, false, 100);
  EXPECT_EQ(w.core.devices_busy(), 1u) << "the other has its memory";
  w.Tell(ClientClosed{ConnId{2}, absl::OkStatus()});
  const int64_t before_ms = w.core.BillOf(id).ms;
  ClientResume resume{ConnId{3}, kTenant, Token{1, 1}, {}};
  resume.device_class = "large";
  w.Tell(resume);
  w.Answer(w.Asked());
  w.Tell(ExecutorAttached{id, WallTime{}});
  EXPECT_NE(w.Get<Live>(), nullptr);
  beats(5, id, true, 50);
  return w.core.BillOf(id).ms - before_ms;
}

TEST(CoreUnpaid, WhatIsRepeated_AfterAnotherNeededItsMemory_IsFree) {
  EXPECT_EQ(ChargedAfterMemoryWasNeededBy(TenantId{8}), 0);
}

// Nobody has time for nothing who opens a session of their own to be in the way of another.
TEST(CoreUnpaid, WhatIsRepeated_AfterItsOwnAccountNeededItsMemory_IsCharged) {
  EXPECT_GE(ChargedAfterMemoryWasNeededBy(kTenant), 4500);
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

}  // namespace
}  // namespace outboard::gateway
