// Workers that do what an honest one does not, and what becomes of them: D7 of core_driver.cc.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/gateway/lying_worker_world.h"
#include "wire/merkle.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway {
namespace {

TEST_F(LyingWorkerTest, WhoSpeaksForASessionThatItNeverHadIsSetAside) {
  OpenLive();
  Join(rogue_port_, 'r');
  const std::string id = worker_.assign()->session_id();
  Beat(worker_port_, id);
  EXPECT_TRUE(watcher_.offences.empty());
  Beat(rogue_port_, id);
  EXPECT_EQ(watcher_.offences, std::vector<std::string>{"other_session"});
  ASSERT_EQ(watcher_.set_aside.size(), 1u);
  EXPECT_TRUE(watcher_.set_aside[0].starts_with("gpu#2"));
  RunAll(host_.jobs);
  ASSERT_EQ(quarantine_.rows.size(), 1u);
  EXPECT_EQ(quarantine_.rows[0].name, "gpu");
  // The end of a session is no other worker's to tell either.
  proto::WorkerEvent event;
  event.mutable_session_ended()->set_session_id(id);
  rogue_port_.OnEvent(event);
  EXPECT_EQ(driver_.session_count(), 1u);
  EXPECT_EQ(quarantine_.rows.size(), 1u);
  // No session comes to it, now or when it joins again.
  WorkerEnd again;
  WorkerPort again_port(&driver_, &again);
  rogue_port_.OnGone();
  Join(again_port, 'r');
  ClientEnd other;
  ClientPort other_port(&driver_, &host_, &auth_, &other, {});
  Open(other_port, OpenFrame());
  EXPECT_EQ(again.assign(), nullptr);
  // Until it is lifted.
  quarantine_.rows.clear();
  for (int i = 0; i < kKeyCheckTicks; ++i) Tick(10);
  RunAll(host_.jobs);
  EXPECT_EQ(watcher_.lifted, 1);
  EXPECT_NE(again.assign(), nullptr);
  other_port.OnGone();
}

TEST_F(LyingWorkerTest, D7ItStaysSetAsideAfterARestart_AndAWriteThatFailsIsTriedAgain) {
  OpenLive();
  Join(rogue_port_, 'r');
  quarantine_.trouble = absl::UnavailableError("locked");
  Beat(rogue_port_, worker_.assign()->session_id());
  RunAll(host_.jobs);
  EXPECT_TRUE(quarantine_.rows.empty());
  for (int i = 0; i < kKeyCheckTicks; ++i) Tick(10);
  RunAll(host_.jobs);
  EXPECT_EQ(watcher_.troubles, std::vector{quarantine_.trouble}) << "once for each reason";
  EXPECT_EQ(watcher_.lifted, 0);  // what was never written was not lifted
  quarantine_.trouble = absl::OkStatus();
  for (int i = 0; i < kKeyCheckTicks; ++i) Tick(10);
  RunAll(host_.jobs);
  ASSERT_EQ(quarantine_.rows.size(), 1u);

  CoreDriver next(Options(), &host_, &writes_, &blobs_, &auth_);
  Watcher watcher;
  next.SetObserver(&watcher);
  ASSERT_TRUE(next.SetQuarantine(&quarantine_).ok());
  WorkerEnd end;
  WorkerPort port(&next, &end);
  Join(port, 'r');
  EXPECT_EQ(watcher.set_aside.size(), 1u);
  EXPECT_EQ(next.devices_total(), 0u);
  port.OnGone();
}

// A session that went elsewhere is still named by the worker that had it.
TEST_F(LyingWorkerTest, WhoHadASessionMaySpeakOfIt) {
  OpenLive();
  const proto::Assign first = *worker_.assign();
  executor_port_.Leave();
  WorkerEnd second;
  WorkerPort second_port(&driver_, &second);
  Join(second_port, 's');
  worker_port_.OnGone();  // and the session goes on at the second
  Tick(60'000);
  ASSERT_NE(second.assign(), nullptr);
  WorkerEnd again;
  WorkerPort again_port(&driver_, &again);
  Join(again_port, 'a');
  Beat(again_port, first.session_id());
  EXPECT_TRUE(watcher_.offences.empty());
  again_port.OnGone();
  second_port.OnGone();
}

TEST_F(LyingWorkerTest, AClaimWithAWrongTokenIsCountedAndGivesNothing) {
  OpenLive();
  proto::WorkerEvent event;
  proto::Register& reg = *event.mutable_register_();
  reg.set_name("gpu");
  reg.set_identity(std::string(kWorkerIdentityBytes, 'r'));
  wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
  reg.add_devices();
  proto::HeldSession& held = *reg.add_sessions();
  held.set_session_id(worker_.assign()->session_id());
  held.set_attach_token(std::string(16, 't'));
  rogue_port_.OnEvent(event);
  EXPECT_EQ(watcher_.offences, std::vector<std::string>{"claim"});
  EXPECT_TRUE(watcher_.set_aside.empty());
}

class TwoAccountsTest : public LyingWorkerTest {
 protected:
  // Executors of two accounts on one worker say what none says.
  void ExpectProof(int hours_between) {
    OpenLive();
    Say(executor_port_, Opened());
    Say(executor_port_, DoneOf(7, UINT64_MAX));
    const proto::Done& told = client_.sent.back().items(0).done();
    EXPECT_EQ(told.through_seq(), 0u);  // nothing was sent
    EXPECT_LT(told.device_time_us(), 60'000'000u);
    Tick(10);
    ASSERT_EQ(watcher_.offences.size(), 1u);
    Say(executor_port_, DoneOf(0), /*epoch=*/2);
    Tick(10);
    EXPECT_EQ(watcher_.offences.back(), "future_epoch");
    EXPECT_TRUE(watcher_.set_aside.empty());

    auth_.identity.tenant = TenantId{2};
    rogue_port_.OnGone();
    proto::WorkerEvent event;  // the same worker, by a second connection
    proto::Register& reg = *event.mutable_register_();
    reg.set_name("gpu");
    reg.set_identity(std::string(kWorkerIdentityBytes, 'a'));
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    reg.add_devices();
    rogue_port_.OnEvent(event);
    ClientEnd other;
    ClientPort other_port(&driver_, &host_, &auth_, &other, {});
    Open(other_port, OpenFrame());
    ASSERT_NE(rogue_.assign(), nullptr);
    ASSERT_TRUE(Attach(next_port_, *rogue_.assign()).ok());
    RunAll(writes_.jobs);
    Say(next_port_, Opened());
    Say(next_port_, DoneOf(0, UINT64_MAX));  // of a worker whose gateway slept, too
    Tick(10);
    EXPECT_EQ(watcher_.offences.back(), "device_time");
    EXPECT_TRUE(watcher_.set_aside.empty());
    host_.now.ns += hours_between * 3600 * kSecondNs;
    Say(next_port_, DoneOf(0), /*epoch=*/9);
    Tick(10);
    EXPECT_EQ(watcher_.set_aside.empty(), hours_between >= 24);
    other_port.OnGone();
  }
};

// Its tenant may have taken it over: it must not have workers set aside alone.
TEST_F(TwoAccountsTest, WhatAnExecutorSaysIsCappedAndCounted_AndOfTwoAccountsIsProof) {
  ExpectProof(/*hours_between=*/1);
}

TEST_F(TwoAccountsTest, OnDifferentDaysItIsNoProof) {
  ExpectProof(/*hours_between=*/25);
}

TEST_F(LyingWorkerTest, HonestDeviceTimeIsBelieved) {
  OpenLive();
  Say(executor_port_, Opened());
  host_.now.ns += 100 * kSecondNs;
  Say(executor_port_, DoneOf(0, 99'000'000));
  EXPECT_EQ(client_.sent.back().items(0).done().device_time_us(), 99'000'000u);
  EXPECT_TRUE(watcher_.offences.empty());
}

// Machines of an account's own, which dial in where clients do.
class OwnWorkerTest : public LyingWorkerTest {
 protected:
  OwnWorkerTest() {
    worker_port_.OnGone();
    own_port_.SetOwner(auth_.identity);
    Join(own_port_, 'o', key_.public_key());
  }
  static proto::WorkerEvent BeatOf(size_t sessions, size_t receipts = 0) {
    proto::WorkerEvent event;
    event.mutable_heartbeat()->set_beat(1);
    for (size_t i = 0; i < sessions; ++i)
      event.mutable_heartbeat()->add_sessions(SessionId{9, i + 1}.Bytes());
    for (size_t i = 0; i < receipts; ++i) event.mutable_heartbeat()->add_receipts();
    return event;
  }
  const signing::SigningKey key_ = signing::SigningKey::Make();
  WorkerEnd own_;
  WorkerPort own_port_{&driver_, &own_};
};

TEST_F(OwnWorkerTest, WhoNamesMoreSessionsThanItWasGiven_IsCutOff) {
  own_port_.OnEvent(BeatOf(kSessionsBeyondMax));
  EXPECT_TRUE(own_.ends.empty());
  const size_t before = own_.sent.size();
  own_port_.OnEvent(BeatOf(kSessionsBeyondMax + 1));
  ASSERT_EQ(own_.ends.size(), 1u);
  EXPECT_EQ(own_.ends[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(own_.ends[0].message().find("it was given 0"), std::string::npos) << own_.ends[0];
  own_port_.OnEvent(BeatOf(0));
  EXPECT_LE(own_.sent.size(), before + 1) << "what it says now does not count";
}

TEST_F(OwnWorkerTest, WhoSaysTooMuch_IsCutOff) {
  for (int i = 0; i < 2 * static_cast<int>(kOwnEventsAtOnce) && own_.ends.empty(); ++i)
    own_port_.OnEvent(BeatOf(0));
  ASSERT_EQ(own_.ends.size(), 1u);
  EXPECT_EQ(own_.ends[0].code(), absl::StatusCode::kResourceExhausted);
}

// Each would be a line in the log.
TEST_F(OwnWorkerTest, ReceiptThatItDidNotSign_CutsItOff_AndADeviceFailsOnce) {
  for (const uint32_t device : {7u, 0u, 0u}) {
    proto::WorkerEvent event;
    event.mutable_device_out()->set_device(device);
    own_port_.OnEvent(event);
  }
  EXPECT_EQ(watcher_.devices_out, std::vector<uint32_t>{0});
  EXPECT_TRUE(own_.ends.empty());
  own_port_.OnEvent(BeatOf(0, 100));
  RunAll(host_.jobs);
  ASSERT_EQ(own_.ends.size(), 1u);
  EXPECT_EQ(own_.ends[0].code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(watcher_.offences, std::vector<std::string>{"receipt"});
}

TEST_F(OwnWorkerTest, ToComeBack_GivesNoOtherReceipts) {
  own_port_.OnEvent(BeatOf(0, 4000));
  EXPECT_TRUE(own_.ends.empty());
  own_port_.OnGone();
  WorkerEnd again;
  WorkerPort port(&driver_, &again);
  port.SetOwner(auth_.identity);
  Join(port, 'p', key_.public_key());
  port.OnEvent(BeatOf(0, 200));
  EXPECT_EQ(again.ends.size(), 1u);
  host_.jobs.clear();
  port.OnGone();
}

// It has another identity whenever it likes: rows of those would fill the books.
TEST_F(OwnWorkerTest, OneThatLies_IsCutOff_AndNothingOfItIsKept) {
  Join(rogue_port_, 'r');  // of the fleet
  proto::ClientFrame frame = OpenFrame();
  Open(client_port_, frame);
  ASSERT_NE(own_.assign(), nullptr);
  WorkerEnd liar;
  WorkerPort port(&driver_, &liar);
  port.SetOwner(auth_.identity);
  Join(port, 'l');
  Beat(port, own_.assign()->session_id());
  ASSERT_EQ(liar.ends.size(), 1u);
  EXPECT_EQ(liar.ends[0].code(), absl::StatusCode::kPermissionDenied);
  RunAll(host_.jobs);
  EXPECT_TRUE(quarantine_.rows.empty());
  EXPECT_TRUE(watcher_.set_aside.empty());
  port.OnGone();
}

TEST_F(OwnWorkerTest, WhoJoinsWithTooManySessions_IsRefused) {
  proto::WorkerEvent event;
  proto::Register& reg = *event.mutable_register_();
  wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
  reg.add_devices();
  for (size_t i = 0; i <= kWorkerSessionsMax; ++i) reg.add_sessions();
  rogue_port_.OnEvent(event);
  ASSERT_EQ(rogue_.ends.size(), 1u);
  EXPECT_EQ(rogue_.ends[0].code(), absl::StatusCode::kInvalidArgument);
}

// What an honest worker is known by is seen by others: the name on its certificate, of which its
// identity is made, and the key of its receipts.
class ImitatedWorkerTest : public LyingWorkerTest {
 protected:
  ImitatedWorkerTest() {
    worker_port_.OnGone();
    Join(honest_port_, 'h', key_.public_key());
    Open();
    EXPECT_TRUE(Attach(executor_port_, *honest_.assign()).ok());
    RunAll(writes_.jobs);
    own_port_.SetOwner(kOther);
  }
  ~ImitatedWorkerTest() override { own_port_.OnGone(); }
  void Work(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      host_.now.ns += kSecondNs;
      Beat(honest_port_, honest_.assign()->session_id());
      RunAll(host_.jobs);
      RunAll(writes_.jobs);
    }
  }
  int64_t BilledMs() { return driver_.ListSessions(auth_.identity.tenant).at(0).bill.ms; }

  const Identity kOther{TenantId{2}, "k"};
  const signing::SigningKey key_ = signing::SigningKey::Make();
  WorkerEnd honest_, own_;
  WorkerPort honest_port_{&driver_, &honest_}, own_port_{&driver_, &own_};
};

TEST_F(ImitatedWorkerTest, ByAMachineOfAnAccountsOwn_IsChargedAsBefore) {
  Work(1);
  Join(own_port_, 'h', key_.public_key());
  Work(2);
  EXPECT_EQ(BilledMs(), 3000) << "it has not joined again";
}

// Else the lease that has its device now would have to be over.
TEST_F(ImitatedWorkerTest, WhoseKeyAnotherAccountsMachineShows_KeepsItsDevice) {
  Work(1);
  Join(own_port_, 'o', key_.public_key());
  const Identity honest = std::exchange(auth_.identity, kOther);
  ClientEnd other;
  ClientPort other_port(&driver_, &host_, &auth_, &other, {});
  proto::ClientFrame open = OpenFrame();
  open.mutable_items(0)->mutable_open()->set_device_class("own");
  Open(other_port, open);
  ASSERT_NE(own_.assign(), nullptr);
  ASSERT_TRUE(Attach(next_port_, *own_.assign()).ok());
  RunAll(writes_.jobs);
  ASSERT_EQ(writes_.leases.size(), 2u);
  auth_.identity = honest;
  Work(8);
  EXPECT_EQ(BilledMs(), 9000);
  EXPECT_FALSE(writes_.charges.empty());
  EXPECT_TRUE(client_.ends.empty()) << client_.ends[0];
  other_port.OnGone();
}

// Of the fleet, and without a certificate.
TEST_F(ImitatedWorkerTest, WithACertificate_IsReplacedByNobodyElse) {
  const std::string name = "node-7";
  const wire::Hash hash = Sha256("outboard worker's certificate " + name);
  proto::WorkerEvent event;
  proto::Register& reg = *event.mutable_register_();
  reg.set_name(name);
  reg.set_identity(std::string(wire::AsBytes(hash)));
  wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
  reg.add_devices()->set_hardware_class("small");
  WorkerEnd proved;
  WorkerPort proved_port(&driver_, &proved, name);
  proved_port.OnEvent(event);
  ClientEnd other;
  ClientPort other_port(&driver_, &host_, &auth_, &other, {});
  Open(other_port, OpenFrame());
  ASSERT_NE(proved.assign(), nullptr);
  ASSERT_TRUE(Attach(next_port_, *proved.assign()).ok());
  RunAll(writes_.jobs);
  rogue_port_.OnEvent(event);
  reg.set_name("node-8");  // the same identity by another name
  WorkerEnd renamed;
  WorkerPort renamed_port(&driver_, &renamed);
  renamed_port.OnEvent(event);
  host_.now.ns += kSecondNs;
  // It speaks for a session that it never had, and is set aside, alone.
  Beat(renamed_port, proved.assign()->session_id());
  Beat(proved_port, proved.assign()->session_id());
  ASSERT_EQ(watcher_.set_aside.size(), 1u);
  EXPECT_TRUE(watcher_.set_aside[0].starts_with("node-8"));
  int64_t billed_ms = 0;
  for (const auto& session : driver_.ListSessions(auth_.identity.tenant))
    billed_ms += session.bill.ms;
  EXPECT_EQ(billed_ms, 1000);
  other_port.OnGone();
  renamed_port.OnGone();
  proved_port.OnGone();
}

}  // namespace
}  // namespace outboard::gateway
