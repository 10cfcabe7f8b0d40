// Workers that do what an honest one does not, and what becomes of them: D7 of core_driver.cc.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gateway/accounts/worker_quarantine.h"
#include "gateway/data_path/observer.h"
#include "tests/gateway/core_driver_world.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway {
namespace {

class Quarantine final : public WorkerQuarantine {
 public:
  absl::Status Add(const SetAsideWorker& worker) override {
    if (!trouble.ok()) return trouble;
    rows.push_back(worker);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<SetAsideWorker>> Read() override { return rows; }
  std::vector<SetAsideWorker> rows;
  absl::Status trouble;
};

class Watcher final : public DriverObserver {
 public:
  void OnWorkerOffence(const ObservedSession&, std::string_view, std::string_view kind) override {
    offences.emplace_back(kind);
  }
  void OnWorkerSetAside(std::string_view name, std::string_view, std::string_view) override {
    set_aside.emplace_back(name);
  }
  void OnWorkerLifted(std::string_view, std::string_view) override { ++lifted; }
  void OnQuarantineTrouble(const absl::Status& why) override { troubles.push_back(why); }
  std::vector<std::string> offences, set_aside;
  int lifted = 0;
  std::vector<absl::Status> troubles;
};

class LyingWorkerTest : public CoreDriverTest {
 protected:
  LyingWorkerTest() {
    driver_.SetObserver(&watcher_);
    EXPECT_TRUE(driver_.SetQuarantine(&quarantine_).ok());
  }
  void Beat(WorkerPort& port, const std::string& session) {
    proto::WorkerEvent event;
    event.mutable_heartbeat()->set_beat(1);
    event.mutable_heartbeat()->add_sessions(session);
    port.OnEvent(event);
  }
  // Executors of two accounts on one worker say what none says.
  void ExpectProofOfTwoAccounts(int hours_between);
  void OpenLive() {
    Open();
    ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
    RunAll(writes_.jobs);
  }
  // What the executor of this port says, of epoch 1.
  static void Say(ExecutorPort& port, const proto::ServerItem& item, uint64_t epoch = 1) {
    proto::ServerFrame frame;
    frame.set_epoch(epoch);
    *frame.add_items() = item;
    port.OnFrame(std::move(frame));
  }
  static proto::ServerItem Opened() {
    proto::ServerItem item;
    item.mutable_opened();
    return item;
  }
  static proto::ServerItem DoneOf(uint64_t seq, uint64_t device_us = 0) {
    proto::ServerItem item;
    item.mutable_done()->set_through_seq(seq);
    item.mutable_done()->set_device_time_us(device_us);
    return item;
  }

  Watcher watcher_;
  Quarantine quarantine_;
  WorkerEnd rogue_;
  WorkerPort rogue_port_{&driver_, &rogue_};
};

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

// Its tenant may have taken it over: it must not have workers set aside alone.
TEST_F(LyingWorkerTest, WhatAnExecutorSaysIsCappedAndCounted_AndOfTwoAccountsIsProof) {
  ExpectProofOfTwoAccounts(/*hours_between=*/1);
}

TEST_F(LyingWorkerTest, OfTwoAccountsOnDifferentDaysItIsNoProof) {
  ExpectProofOfTwoAccounts(/*hours_between=*/25);
}

void LyingWorkerTest::ExpectProofOfTwoAccounts(int hours_between) {
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

TEST_F(LyingWorkerTest, HonestDeviceTimeIsBelieved) {
  OpenLive();
  Say(executor_port_, Opened());
  host_.now.ns += 100 * kSecondNs;
  Say(executor_port_, DoneOf(0, 99'000'000));
  EXPECT_EQ(client_.sent.back().items(0).done().device_time_us(), 99'000'000u);
  EXPECT_TRUE(watcher_.offences.empty());
}

// A worker that writes receipts, and its session.
class ReceiptsTest : public LyingWorkerTest {
 protected:
  ReceiptsTest() {
    worker_port_.OnGone();
    Join(counting_port_, 'c', key_.public_key());
    Open();
    EXPECT_TRUE(Attach(executor_port_, *counting_.assign()).ok());
    RunAll(writes_.jobs);
  }
  const proto::LeaseChange* LastChange() const {
    const proto::LeaseChange* last = nullptr;
    for (const proto::GatewayCommand& command : counting_.sent)
      if (command.has_lease_change()) last = &command.lease_change();
    return last;
  }
  proto::Receipt ReceiptOf(uint64_t number, uint64_t usable_ms) const {
    proto::Receipt receipt;
    receipt.set_session_id(counting_.assign()->session_id());
    receipt.set_grant(1);
    receipt.set_number(number);
    receipt.set_usable_ms(usable_ms);
    receipt.set_physical_device(signing::PhysicalDevice(key_.public_key(), 0));
    signing::Sign(key_, receipt);
    return receipt;
  }
  // At once, as the last one of a lease.
  void Tell(const proto::Receipt& receipt) {
    proto::WorkerEvent event;
    *event.mutable_receipt() = receipt;
    counting_port_.OnEvent(event);
    RunAll(host_.jobs);
    RunAll(writes_.jobs);
    RunAll(host_.jobs);
  }
  const signing::SigningKey key_ = signing::SigningKey::Make();
  WorkerEnd counting_;
  WorkerPort counting_port_{&driver_, &counting_};
};

TEST_F(ReceiptsTest, WorkerIsToldOfItsLeases_AndTheyNameTheirDevices) {
  ASSERT_NE(LastChange(), nullptr);
  EXPECT_FALSE(LastChange()->ends());
  EXPECT_EQ(LastChange()->session_id(), counting_.assign()->session_id());
  EXPECT_EQ(LastChange()->grant(), 1u);
  EXPECT_EQ(LastChange()->devices_size(), 1);
  EXPECT_EQ(LastChange()->places_size(), 1);
  ASSERT_EQ(writes_.leases.size(), 1u);
  EXPECT_EQ(writes_.leases[0].physical_devices,
            std::vector<std::string>{signing::PhysicalDevice(key_.public_key(), 0)});
  proto::ClientFrame close;
  close.set_epoch(1);
  close.add_items()->mutable_close();
  client_port_.OnFrame(std::move(close));
  RunAll(host_.jobs);
  EXPECT_TRUE(LastChange()->ends());
}

TEST_F(ReceiptsTest, ReceiptsOfBeats_AreKeptEveryFewSeconds_TheLastOfALeaseAtOnce) {
  proto::WorkerEvent event;
  event.mutable_heartbeat()->set_beat(1);
  *event.mutable_heartbeat()->add_receipts() = ReceiptOf(1, 1000);
  counting_port_.OnEvent(event);
  RunAll(host_.jobs);
  EXPECT_TRUE(writes_.receipts.empty());
  for (int i = 0; i < 30; ++i) Tick(200);
  ASSERT_EQ(writes_.receipts.size(), 1u);
  Tell(ReceiptOf(2, 1500));
  ASSERT_EQ(writes_.receipts.size(), 2u);
  EXPECT_EQ(writes_.receipts[1].number(), 2u);
  EXPECT_TRUE(watcher_.offences.empty());
}

TEST_F(ReceiptsTest, WhoContradictsItsReceipts_IsSetAside) {
  writes_.receipts_refused = absl::AbortedError("came before with other content");
  Tell(ReceiptOf(1, 1000));
  EXPECT_EQ(watcher_.offences, std::vector<std::string>{"receipt_conflict"});
  EXPECT_EQ(watcher_.set_aside.size(), 1u);
  EXPECT_TRUE(LastChange()->ends());  // its leases stop
}

TEST_F(ReceiptsTest, ReceiptOfAnotherKeyOrContent_IsDropped) {
  proto::Receipt changed = ReceiptOf(1, 1000);
  changed.set_usable_ms(2000);
  Tell(changed);
  proto::Receipt others = ReceiptOf(1, 1000);
  const signing::SigningKey other = signing::SigningKey::Make();
  others.set_physical_device(signing::PhysicalDevice(other.public_key(), 0));
  signing::Sign(other, others);
  Tell(others);
  EXPECT_TRUE(writes_.receipts.empty());
  EXPECT_EQ(watcher_.offences, (std::vector<std::string>{"receipt", "receipt"}));
  EXPECT_TRUE(watcher_.set_aside.empty());
}

}  // namespace
}  // namespace outboard::gateway
