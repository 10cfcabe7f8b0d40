// CoreDriver on one thread, with a clock and a disk that the test moves by hand. D1 to D6 are the
// invariants in core_driver.cc; tests/sim has it in whole fleets.
#include "gateway/data_path/core_driver.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/shard/shard.h"
#include "gateway/accounts/accounts.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/base/limits.h"
#include "gateway/base/token.h"
#include "gateway/blobs/blob_uses.h"
#include "gateway/data_path/admitted.h"
#include "gateway/data_path/host.h"
#include "gateway/data_path/observer.h"
#include "gateway/data_path/ports.h"
#include "gateway/ledger/usage.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "proto/groups.pb.h"
#include "tests/gateway/core_driver_world.h"
#include "wire/limits.h"
#include "wire/version.h"

namespace outboard::gateway {
namespace {

TEST_F(CoreDriverTest, AnExecutorsAccountIsNamedAndWhetherItSharesWhatIsMeasured) {
  auth_.identity.shares_tuning = true;
  Open();
  ASSERT_NE(worker_.assign(), nullptr);
  EXPECT_EQ(worker_.assign()->account(), 1u);
  EXPECT_TRUE(worker_.assign()->shares_tuning());
}

TEST_F(CoreDriverTest, AnAccountThatDoesNotShareSaysSo) {
  Open();
  EXPECT_FALSE(worker_.assign()->shares_tuning());
}

TEST_F(CoreDriverTest, D3AnEpochIsToldWhenItsRowIsWritten) {
  Open();
  ASSERT_NE(worker_.assign(), nullptr);
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  EXPECT_TRUE(writes_.rows.empty());  // until a minute is held
  for (const auto& job : std::exchange(writes_.jobs, {})) job();
  ASSERT_EQ(writes_.rows.size(), 1u);
  EXPECT_EQ(writes_.rows[0].epoch, 1u);
  EXPECT_TRUE(executor_.sent.empty());
  RunAll(writes_.jobs);
  ASSERT_EQ(executor_.sent.size(), 1u);
  EXPECT_EQ(executor_.sent[0].epoch(), 1u);
  EXPECT_TRUE(executor_.sent[0].items(0).has_open());
}

// How long a lease held its devices is measured by the wall clock, what it is charged by the
// monotonic one. Time that passes between reading the two must not make the first the shorter one.
TEST_F(CoreDriverTest, ALeaseIsStampedWithTheTimeAtWhichItsMeterBegan) {
  Open();
  ASSERT_NE(worker_.assign(), nullptr);
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  const int64_t began_ms = host_.now.ns / 1'000'000;
  host_.wall_takes_ns = 7'300'000;
  RunAll(writes_.jobs);
  ASSERT_EQ(writes_.leases.size(), 1u);
  EXPECT_LE(writes_.leases[0].granted_at.unix_ms, began_ms);
  EXPECT_GE(writes_.leases[0].granted_at.unix_ms, began_ms - 1);  // rounded to be no later
}

// An entry without content takes 2 bytes on the wire and 50 here.
TEST_F(CoreDriverTest, AnOpenIsBounded) {
  const auto ends = [&](const std::function<void(proto::Open&)>& change) {
    ClientEnd client;
    ClientPort port(&driver_, &host_, &auth_, &client, {});
    proto::ClientFrame frame = OpenFrame();
    frame.mutable_items(0)->mutable_open()->set_resume_token(std::string(16, 't'));
    change(*frame.mutable_items(0)->mutable_open());
    Open(port, std::move(frame));
    RunAll(writes_.jobs);
    port.OnGone();
    return client.ends.empty() ? absl::OkStatus() : client.ends[0];
  };
  const auto uses = [](int count, size_t bytes) {
    return [=](proto::Open& open) {
      for (int i = 0; i < count; ++i) open.add_kernel_uses()->set_kernel(std::string(bytes, 'k'));
    };
  };
  // What is within the limits is looked for, and not found.
  const auto is_taken = [](const absl::Status& end) { return absl::IsNotFound(end); };
  EXPECT_TRUE(is_taken(ends(uses(1000, 32))));
  const std::string name(100, 'n');
  EXPECT_TRUE(is_taken(ends([&](proto::Open& open) { open.set_client_name(name); })));
  for (const std::function<void(proto::Open&)>& wrong :
       std::vector<std::function<void(proto::Open&)>>{
           uses(1001, 32), uses(500'000, 0), uses(1, 31),
           [](proto::Open& open) { open.add_kernel_uses()->set_opts(std::string(1 << 17, 'o')); },
           [&](proto::Open& open) { open.set_client_name(name + "n"); },
           [](proto::Open& open) { open.set_client_version("1\n2"); },
           [](proto::Open& open) { open.set_devices(wire::kSessionDevicesMax + 1); },
           [](proto::Open& open) { open.add_mesh(2); },  // of one device
           [](proto::Open& open) {
             open.set_devices(4);
             for (int i = 0; i < 3; ++i) open.add_mesh(0xffffffff);
           },
           [](proto::Open& open) {
             open.set_devices(1);
             for (int i = 0; i < 100'000; ++i) open.add_mesh(1);
           },
           [](proto::Open& open) { open.set_spread("everywhere"); }})
    EXPECT_EQ(ends(wrong).code(), absl::StatusCode::kInvalidArgument) << ends(wrong);
}

TEST_F(CoreDriverTest, OfANewSessionsOpenNoKernelUseIsKept) {
  proto::ClientFrame frame = OpenFrame();
  frame.mutable_items(0)->mutable_open()->add_kernel_uses()->set_kernel(std::string(32, 'k'));
  Open(client_port_, std::move(frame));
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  ASSERT_EQ(executor_.sent.size(), 1u);
  EXPECT_EQ(executor_.sent[0].items(0).open().kernel_uses_size(), 0);
}

TEST_F(CoreDriverTest, WhoIsNotLetInOpensNothing) {
  for (const bool has_key : {false, true}) {
    (has_key ? auth_.may_open : auth_.admits) = absl::UnavailableError("too many");
    ClientEnd client;
    ClientPort port(&driver_, &host_, &auth_, &client, {});
    port.Begin();
    RunAll(host_.jobs);
    if (has_key) port.OnFrame(OpenFrame());
    EXPECT_EQ(worker_.assign(), nullptr);
    ASSERT_EQ(client.ends.size(), 1u);
    EXPECT_TRUE(absl::IsUnavailable(client.ends[0])) << client.ends[0];
    port.OnGone();
    auth_.admits = absl::OkStatus();
  }
}

TEST_F(CoreDriverTest, AStreamWithoutAnOpenEnds) {
  // While the gateway looks at its key, the client waits, and not the gateway.
  client_port_.Begin();
  for (int64_t ms = 0; ms < 2 * kOpenMs; ms += kTickMs) Tick(kTickMs);
  EXPECT_TRUE(client_.ends.empty());
  RunAll(host_.jobs);
  for (int64_t ms = 0; ms < kOpenMs; ms += kTickMs) Tick(kTickMs);
  EXPECT_TRUE(client_.ends.empty());
  Tick(kTickMs);
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_EQ(client_.ends[0].code(), absl::StatusCode::kDeadlineExceeded);
}

// What the client sent meanwhile may wait to be read.
TEST_F(CoreDriverTest, AGatewayThatStoodStillEndsNoStreamForIt) {
  client_port_.Begin();
  RunAll(host_.jobs);
  for (int i = 0; i < 10; ++i) Tick(kOpenMs);
  EXPECT_TRUE(client_.ends.empty());
  client_port_.OnFrame(OpenFrame());
  RunAll(host_.jobs);
  EXPECT_NE(worker_.assign(), nullptr);
}

TEST_F(CoreDriverTest, D3WhoLeavesBeforeTheRowIsWrittenIsNotConnected) {
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  client_port_.OnGone();
  RunAll(writes_.jobs);
  EXPECT_TRUE(executor_.sent.empty());
}

TEST_F(CoreDriverTest, D4OnlyTheTokenOfTheLastAssignAttaches) {
  Open();
  proto::Assign wrong = *worker_.assign();
  wrong.set_attach_token(std::string(16, 'x'));
  EXPECT_EQ(Attach(executor_port_, wrong).code(), absl::StatusCode::kPermissionDenied);
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  EXPECT_EQ(Attach(next_port_, first).code(), absl::StatusCode::kPermissionDenied);  // once
}

// Its worker has some time to say why; then the session goes on with another executor.
TEST_F(CoreDriverTest, D1AnExecutorWhoseStreamEndsIsReplacedAfterAMoment) {
  Open();
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  RunAll(writes_.jobs);
  executor_port_.Leave();
  Tick(kExecutorWordMs / 2);
  EXPECT_EQ(worker_.assign()->placement(), first.placement());
  Tick(kExecutorWordMs);
  const proto::Assign second = *worker_.assign();
  EXPECT_EQ(second.placement(), first.placement() + 1);
  ASSERT_TRUE(Attach(next_port_, second).ok());
  RunAll(writes_.jobs);
  ASSERT_EQ(next_.sent.size(), 1u);
  EXPECT_EQ(next_.sent[0].epoch(), 2u);
}

// What an executor says last is on its way while its worker reports the end of its process.
TEST_F(CoreDriverTest, WhyAnExecutorFailedIsReadBeforeItsEndIsDecided) {
  Open();
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  RunAll(writes_.jobs);
  Report(first);
  EXPECT_EQ(driver_.session_count(), 1u);
  proto::ServerFrame frame;
  frame.set_epoch(1);
  proto::Failed& failed = *frame.add_items()->mutable_failed();
  failed.set_code(static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  failed.set_message("a gap");
  executor_port_.OnFrame(std::move(frame));
  executor_port_.Leave();
  EXPECT_EQ(driver_.session_count(), 0u);
  RunAll(writes_.jobs);
  ASSERT_EQ(client_.ends.size(), 1u);
  const proto::ServerFrame& last = client_.sent.back();
  EXPECT_EQ(last.items(last.items_size() - 1).failed().message(), "a gap");
}

TEST_F(CoreDriverTest, AnExecutorWhoseStreamStaysOpenIsReplacedAfterAMoment) {
  Open();
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  RunAll(writes_.jobs);
  Report(first);
  Tick(kExecutorWordMs / 2);
  EXPECT_EQ(worker_.assign()->placement(), first.placement());
  Tick(kExecutorWordMs);
  EXPECT_EQ(worker_.assign()->placement(), first.placement() + 1);
}

// The stream that ends after it may be a living executor's.
TEST_F(CoreDriverTest, AReportOfAnEarlierPlacementDoesNotStandForThisOne) {
  Open();
  const proto::Assign first = *worker_.assign();
  ASSERT_TRUE(Attach(executor_port_, first).ok());
  RunAll(writes_.jobs);
  proto::Assign earlier = first;
  earlier.set_placement(first.placement() + 7);
  Report(earlier);
  executor_port_.Leave();
  EXPECT_EQ(worker_.assign()->placement(), first.placement());
  Report(first);
  EXPECT_EQ(worker_.assign()->placement(), first.placement() + 1);
}

TEST_F(CoreDriverTest, D2NothingIsLeftOfASessionThatIsClosed) {
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  proto::ClientFrame close;
  close.add_items()->mutable_close();
  client_port_.OnFrame(std::move(close));
  EXPECT_EQ(driver_.session_count(), 0u);
  EXPECT_TRUE(executor_.ended);
  EXPECT_TRUE(client_.ends.empty());  // the bill is not written yet
  RunAll(writes_.jobs);
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_TRUE(client_.ends[0].ok());
  RunAll(host_.jobs);
  EXPECT_EQ(blobs_.ended, 1);
}

// And not what was known of it at its worker's last heartbeat.
TEST_F(CoreDriverTest, WhoStopsASession_IsToldAllThatItHasCost) {
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  host_.now.ns += 3'141'000'000;
  const auto id = SessionId::FromBytes(worker_.assign()->session_id());
  const auto stopped = driver_.StopSession(TenantId{1}, id->Hex());
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_EQ(stopped->second.ms, 3141);
  int64_t charged = 0;
  for (const Charge& charge : writes_.charges) charged += charge.amount.value;
  EXPECT_GT(charged, 0);
  EXPECT_EQ(stopped->second.amount.value, charged);
  EXPECT_TRUE(absl::IsNotFound(driver_.StopSession(TenantId{1}, id->Hex()).status()));
}

// The session of a worker that is away waits for it, or for the end of its time: a name that any
// worker can give itself moves nothing.
TEST_F(CoreDriverTest, ANameIsNotAnIdentity) {
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  EXPECT_TRUE(writes_.rows.back().worker.starts_with("gpu#1@")) << writes_.rows.back().worker;
  worker_port_.OnGone();
  WorkerEnd impostor, same;
  WorkerPort impostor_port(&driver_, &impostor), same_port(&driver_, &same);
  Join(impostor_port, 'b');
  EXPECT_EQ(impostor.assign(), nullptr);
  Join(same_port, 'a');  // started again: its executor is gone
  EXPECT_TRUE(impostor.assign() != nullptr || same.assign() != nullptr);
  RunAll(writes_.jobs);
}

TEST_F(CoreDriverTest, AKeyThatStandsNoMoreEndsItsStreamsAndKeepsTheSession) {
  auth_.identity.key_id = "a";
  Open();
  ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
  RunAll(writes_.jobs);
  proto::ServerFrame opened;
  opened.set_epoch(1);
  opened.add_items()->mutable_opened();
  executor_port_.OnFrame(std::move(opened));
  ASSERT_EQ(client_.sent.size(), 1u);
  const proto::Opened& told = client_.sent[0].items(0).opened();
  ValuesEnd values;
  ASSERT_TRUE(driver_
                  .OpenValues(&values, {TenantId{1}, "b"}, *SessionId::FromBytes(told.session_id()),
                              *TokenFromBytes(told.resume_token()))
                  .ok());
  // Within 5 s each: of the values' key, then of the session's.
  const auto pass = [&](const std::string& refused) {
    auth_.refused = refused;
    for (int64_t ms = 0; ms < 5000; ms += kTickMs) {
      proto::WorkerEvent beat;
      beat.mutable_heartbeat()->set_beat(1);
      worker_port_.OnEvent(beat);
      Tick(kTickMs);
      RunAll(host_.jobs);
    }
    RunAll(writes_.jobs);
  };
  pass("none");
  EXPECT_TRUE(values.ends.empty());
  pass("b");
  ASSERT_EQ(values.ends.size(), 1u);
  EXPECT_TRUE(absl::IsUnauthenticated(values.ends[0]));
  EXPECT_TRUE(client_.ends.empty());
  pass("a");
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_TRUE(absl::IsUnauthenticated(client_.ends[0]));
  EXPECT_EQ(driver_.session_count(), 1u);
  EXPECT_FALSE(executor_.ended);
}

TEST_F(CoreDriverTest, ASaveNeedsAKeyThatMayStore) {
  for (const bool may : {true, false}) {
    auth_.identity.rights.scopes =
        may ? Scopes{KeyScope::kRun, KeyScope::kStore} : Scopes{KeyScope::kRun};
    ClientEnd client;
    ClientPort port(&driver_, &host_, &auth_, &client, {});
    Open(port, OpenFrame());
    proto::ClientFrame save;
    save.add_items()->mutable_save()->set_name("weights");
    port.OnFrame(std::move(save));
    RunAll(writes_.jobs);
    ASSERT_EQ(client.ends.size(), may ? 0u : 1u);
    if (!may) EXPECT_TRUE(absl::IsPermissionDenied(client.ends[0])) << client.ends[0];
    port.OnGone();
  }
}

// With a row that says how its arrays lie behind its snapshot, and only then.
TEST_F(CoreDriverTest, ASessionOfSeveralDevices_WhoseArraysAreKnown_GoesOn) {
  TakenOver taken;
  taken.row.session = SessionId{1, 2};
  taken.row.tenant = TenantId{1};
  taken.row.epoch = 1;
  taken.row.resume_hash = BytesOf(HashOf(Token{3, 4}));
  taken.row.devices = 2;
  taken.row.recoverable = true;
  taken.row.snapshot_seq = 7;
  proto::GroupState state;
  state.set_has_parts(true);
  state.set_seq(6);
  taken.row.group_state = state.SerializeAsString();
  driver_.Restore(taken, {});
  EXPECT_EQ(driver_.session_count(), 0u) << "they are those of another item";
  state.set_seq(7);
  taken.row.group_state = state.SerializeAsString();
  driver_.Restore(taken, {});
  EXPECT_EQ(driver_.session_count(), 1u);
}

// Its row does not say how its arrays lie.
TEST_F(CoreDriverTest, ASessionOfSeveralDevices_EndsWithItsGateway) {
  TakenOver taken;
  taken.row.session = SessionId{1, 2};
  taken.row.tenant = TenantId{1};
  taken.row.epoch = 1;
  taken.row.resume_hash = BytesOf(HashOf(Token{3, 4}));
  taken.row.devices = 2;
  driver_.Restore(taken, {});
  ASSERT_EQ(writes_.rows.size(), 1u);
  EXPECT_EQ(writes_.rows[0].state, SessionRowState::kLost);
  EXPECT_TRUE(writes_.rows[0].closed_at.has_value());
  EXPECT_EQ(driver_.session_count(), 0u);
  proto::ClientFrame frame = OpenFrame();
  frame.mutable_items(0)->mutable_open()->set_resume_token(BytesOf(Token{3, 4}));
  Open(client_port_, std::move(frame));
  RunAll(writes_.jobs);
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_EQ(client_.ends[0].code(), absl::StatusCode::kNotFound);
}

TEST_F(CoreDriverTest, WhatCannotBeWrittenIsNotOpened) {
  writes_.trouble_ = absl::UnavailableError("the disk is full");
  Open();
  EXPECT_EQ(worker_.assign(), nullptr);
  ASSERT_EQ(client_.ends.size(), 1u);
  EXPECT_EQ(client_.ends[0].code(), absl::StatusCode::kUnavailable);
}

// A copy of an identity file on another machine: the gateway takes both for one.
TEST_F(CoreDriverTest, TwoHostsThatShowOneIdentity_AreTold) {
  struct Told final : DriverObserver {
    void OnSameIdentity(std::string_view name, std::string_view address, std::string_view other,
                        std::string_view other_address) override {
      said.push_back(absl::StrCat(std::string(name), " ", std::string(address), " ",
                                  std::string(other), " ", std::string(other_address)));
    }
    std::vector<std::string> said;
  } told;
  driver_.SetObserver(&told);
  const auto join = [&](const std::string& host, char letter) {
    WorkerEnd end;
    end.host = host;
    WorkerPort port{&driver_, &end};
    Join(port, letter);
    port.OnGone();
  };
  join("192.0.2.1", 'a');  // it comes again, before its old connection is noticed as broken
  join("192.0.2.2", 'b');
  EXPECT_TRUE(told.said.empty());
  join("192.0.2.2", 'a');
  EXPECT_EQ(told.said, std::vector<std::string>{"gpu#4 192.0.2.2 gpu#1 192.0.2.1"});
  static DriverObserver nobody;  // outlives the driver
  driver_.SetObserver(&nobody);
  worker_port_.OnGone();
}

// A session on two devices, whose ranks keep their parts.
class DriverGroupTest : public CoreDriverTest {
 protected:
  // `shares`: its executors share the work, and reached so much in the rate check.
  explicit DriverGroupTest(bool shares = false) {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_name("two");
    reg.set_identity(std::string(kWorkerIdentityBytes, 'b'));
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    for (int i = 0; i < 2; ++i) {
      reg.add_devices()->set_hardware_class("large");
      if (shares) reg.mutable_devices(i)->mutable_rates()->set_gflops(3000 + 1000 * i);
    }
    reg.set_has_collectives(shares);
    reg.set_serves_groups(true);
    reg.set_groups_recover(true);
    two_port_.OnEvent(event);
    proto::ClientFrame frame = OpenFrame();
    frame.mutable_items(0)->mutable_open()->set_devices(2);
    Open(client_port_, std::move(frame));
    RunAll(writes_.jobs);
    AttachBoth(executor_port_, next_port_);
    RunAll(writes_.jobs);
  }
  void AttachBoth(ExecutorPort& zero, ExecutorPort& one) {
    assign_ = *two_.assign();
    id_ = *SessionId::FromBytes(assign_.session_id());
    token_ = *TokenFromBytes(assign_.attach_token());
    EXPECT_TRUE(zero.Attach(id_, token_, 0).ok());
    EXPECT_TRUE(one.Attach(id_, token_, 1).ok());
  }
  absl::Status Keep(uint32_t rank, uint64_t seq, char letter, std::optional<Token> token = {}) {
    std::optional<absl::Status> told;
    driver_.KeepSnapshot(id_, token.value_or(token_), std::string(32, letter), seq,
                         [&](absl::Status status) { told = status; }, rank);
    return told.value();
  }
  // The worker says that this rank's executor has ended.
  void Report(uint32_t rank, absl::StatusCode code, uint64_t placement) {
    proto::WorkerEvent event;
    proto::SessionEnded& ended = *event.mutable_session_ended();
    ended.set_session_id(assign_.session_id());
    ended.set_placement(placement);
    ended.set_rank(rank);
    ended.set_code(static_cast<uint32_t>(code));
    ended.set_message("rank says");
    two_port_.OnEvent(event);
  }
  std::string SnapshotRow() {
    RunAll(writes_.jobs), RunAll(host_.jobs);
    return writes_.rows.back().snapshot_root;
  }

  WorkerEnd two_;
  WorkerPort two_port_{&driver_, &two_};
  ExecutorEnd third_, fourth_;
  ExecutorPort third_port_{&driver_, &third_}, fourth_port_{&driver_, &fourth_};
  proto::Assign assign_;
  SessionId id_;
  Token token_;
};

class SharingGroupTest : public DriverGroupTest {
 protected:
  SharingGroupTest() : DriverGroupTest(/*shares=*/true) {}
};

// A gateway that is started again is to make the same choices.
TEST_F(SharingGroupTest, ARow_SaysHowTheSessionIsSharedAndHowFastItsSlowestDeviceIs) {
  proto::GroupState state;
  ASSERT_TRUE(state.ParseFromString(writes_.rows.back().group_state));
  EXPECT_TRUE(state.has_parts());
  EXPECT_EQ(state.seq(), 0u);
  EXPECT_EQ(state.operations_per_s(), shard::OperationsPerS(3e12));
  EXPECT_NEAR(state.operations_per_s(), 3e12, 1.5e12);
}

// Without one, another gateway could not go on with it.
TEST_F(SharingGroupTest, ASnapshotWhoseArraysNobodyNoted_IsInARowWithoutThem) {
  EXPECT_TRUE(Keep(0, 5, 'a').ok());
  EXPECT_TRUE(Keep(1, 5, 'c').ok());
  EXPECT_NE(SnapshotRow(), "");
  EXPECT_EQ(writes_.rows.back().group_state, "");
}

TEST_F(DriverGroupTest, ASnapshot_IsOneWhenAllPartsOfOneItemAreKept) {
  EXPECT_TRUE(Keep(0, 5, 'a').ok());
  EXPECT_TRUE(Keep(1, 6, 'b').ok());
  EXPECT_EQ(SnapshotRow(), "");
  EXPECT_TRUE(Keep(1, 5, 'c').ok());
  EXPECT_EQ(SnapshotRow(), std::string(32, 'a') + std::string(32, 'c'));
  EXPECT_EQ(blobs_.kept_seq, 5u);
  EXPECT_EQ(blobs_.kept.size(), 2u);
  EXPECT_FALSE(Keep(2, 7, 'd').ok()) << "there is no such rank";
}

TEST_F(DriverGroupTest, PartsOfTwoPlacements_AreNoSnapshot) {
  EXPECT_TRUE(Keep(0, 5, 'a').ok());
  const Token old = token_;
  Report(1, absl::StatusCode::kUnavailable, assign_.placement());
  next_port_.Leave();
  ASSERT_NE(two_.assign()->placement(), assign_.placement());
  EXPECT_TRUE(executor_.ended) << "the other one";
  executor_port_.Leave();
  AttachBoth(third_port_, fourth_port_);
  EXPECT_EQ(Keep(1, 5, 'b', old).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Keep(1, 5, 'c').ok());
  EXPECT_EQ(SnapshotRow(), "") << "rank 0's is of the placement before";
  EXPECT_TRUE(Keep(0, 5, 'd').ok());
  EXPECT_EQ(SnapshotRow(), std::string(32, 'd') + std::string(32, 'c'));
}

// Word of how the others end comes after the first, and is not the cause.
TEST_F(DriverGroupTest, OfSeveralEnds_TheFirstIsTheCause) {
  Report(1, absl::StatusCode::kUnavailable, assign_.placement());
  Report(0, absl::StatusCode::kInternal, assign_.placement());
  next_port_.Leave();
  EXPECT_NE(two_.assign()->placement(), assign_.placement()) << "it goes on";
}

// It says nothing of the ranks that there are now, and keeps no place for the cause of their end.
TEST_F(DriverGroupTest, AReportOfAnEarlierPlacement_IsNotTheFirst) {
  const uint64_t earlier = assign_.placement();
  Report(1, absl::StatusCode::kUnavailable, earlier);
  next_port_.Leave();
  executor_port_.Leave();
  AttachBoth(third_port_, fourth_port_);
  ASSERT_NE(assign_.placement(), earlier);
  Report(0, absl::StatusCode::kInternal, earlier);
  Report(1, absl::StatusCode::kUnavailable, assign_.placement());
  Report(0, absl::StatusCode::kInternal, assign_.placement());
  fourth_port_.Leave();
  EXPECT_NE(two_.assign()->placement(), assign_.placement()) << "it goes on again";
}

}  // namespace
}  // namespace outboard::gateway
