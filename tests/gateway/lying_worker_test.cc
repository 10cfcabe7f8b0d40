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
  void OnDeviceOut(std::string_view, uint32_t device, std::string_view) override {
    devices_out.push_back(device);
  }
  std::vector<std::string> offences, set_aside;
  std::vector<uint32_t> devices_out;
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
  static proto::ClientFrame CloseFrame() {
    proto::ClientFrame close;
    close.set_epoch(1);
    close.add_items()->mutable_close();
    return close;
  }
  // At once, as the last one of a lease.
  void Tell(const proto::Receipt& receipt) {
    proto::WorkerEvent event;
    *event.mutable_receipt() = receipt;
    counting_port_.OnEvent(event);
    RunAll(host_.jobs);
    driver_.OnTick();
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
  client_port_.OnFrame(CloseFrame());
  RunAll(host_.jobs);
  RunAll(writes_.jobs);
  EXPECT_TRUE(LastChange()->ends());
}

// A gateway that starts after a crash would give the number again.
TEST_F(ReceiptsTest, WorkerIsToldOfALeaseOnceThatIsOnDisk) {
  ClientEnd other;
  ClientPort other_port(&driver_, &host_, &auth_, &other, {});
  WorkerEnd second;
  WorkerPort second_port(&driver_, &second);
  Join(second_port, 's', signing::SigningKey::Make().public_key());
  Open(other_port, OpenFrame());
  ASSERT_NE(second.assign(), nullptr);
  const auto is_told = [&] {
    return std::any_of(second.sent.begin(), second.sent.end(),
                       [](const auto& command) { return command.has_lease_change(); });
  };
  ASSERT_TRUE(Attach(next_port_, *second.assign()).ok());
  Jobs writes = std::exchange(writes_.jobs, {});  // of the hold, and what follows from it
  for (const auto& write : writes) write();
  EXPECT_FALSE(is_told());
  RunAll(writes_.jobs);
  EXPECT_TRUE(is_told());
  other_port.OnGone();
  second_port.OnGone();
}

// The worker counts from when it is told: it would be blamed for a wait that is ours.
TEST_F(ReceiptsTest, WhileTheRowOfALeaseWaitsForTheDisk_ItIsNotCharged) {
  ClientEnd other;
  ClientPort other_port(&driver_, &host_, &auth_, &other, {});
  WorkerEnd second;
  WorkerPort second_port(&driver_, &second);
  Join(second_port, 's', signing::SigningKey::Make().public_key());
  Open(other_port, OpenFrame());
  ASSERT_NE(second.assign(), nullptr);
  const std::string session = second.assign()->session_id();
  ASSERT_TRUE(Attach(next_port_, *second.assign()).ok());
  for (const auto& write : std::exchange(writes_.jobs, {})) write();
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      Tick(1000);
      Beat(second_port, session);
    }
  };
  pass(90);
  EXPECT_TRUE(next_.sent.empty()) << "its client waits, too";
  RunAll(writes_.jobs);
  EXPECT_FALSE(next_.sent.empty());
  pass(5);
  other_port.OnFrame(CloseFrame());
  int64_t charged_ms = 0;
  for (const Charge& charge : writes_.charges)
    if (charge.device.lease.session.Bytes() == session)
      charged_ms += charge.to_ms - charge.from_ms;
  EXPECT_EQ(charged_ms, 5000) << "since the row is there";
  other_port.OnGone();
  second_port.OnGone();
}

TEST_F(ReceiptsTest, LeaseThatIsNeverOnDisk_EndsItsSession_AndItsWorkerHearsNothing) {
  ClientEnd other;
  ClientPort other_port(&driver_, &host_, &auth_, &other, {});
  WorkerEnd second;
  WorkerPort second_port(&driver_, &second);
  Join(second_port, 's', signing::SigningKey::Make().public_key());
  Open(other_port, OpenFrame());
  ASSERT_NE(second.assign(), nullptr);
  writes_.refuses_lease = absl::DataLossError("the file is damaged");
  ASSERT_TRUE(Attach(next_port_, *second.assign()).ok());
  RunAll(writes_.jobs);
  RunAll(host_.jobs);
  ASSERT_EQ(other.ends.size(), 1u);
  EXPECT_TRUE(absl::IsInternal(other.ends[0])) << other.ends[0];
  for (const proto::ServerFrame& frame : other.sent)
    for (const proto::ServerItem& item : frame.items()) EXPECT_FALSE(item.has_opened());
  for (const proto::GatewayCommand& command : second.sent)
    EXPECT_FALSE(command.has_lease_change() && !command.lease_change().ends());
  EXPECT_TRUE(writes_.charges.empty());
  EXPECT_EQ(writes_.rows.back().state, SessionRowState::kLost);
  other_port.OnGone();
  second_port.OnGone();
}

TEST_F(ReceiptsTest, ReceiptsOfBeats_AreKeptEveryFewSeconds_TheLastOfALeaseWithTheNextTick) {
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

// Each write waits for the disk, and so do those of all accounts behind it.
TEST_F(ReceiptsTest, HoweverManyLeasesEnd_ReceiptsAreWrittenOnceATick) {
  for (uint64_t number = 1; number <= 100; ++number) {
    proto::WorkerEvent event;
    *event.mutable_receipt() = ReceiptOf(number, number);
    counting_port_.OnEvent(event);
    RunAll(host_.jobs);
  }
  EXPECT_TRUE(writes_.receipts.empty());
  Tick(kTickMs);
  EXPECT_FALSE(writes_.receipts.empty());
  EXPECT_TRUE(counting_.ends.empty());
}

TEST_F(ReceiptsTest, MoreReceiptsThanItsLeasesNeed_EndTheStream_ButHonestOnesNeverDo) {
  proto::WorkerEvent beat;
  beat.mutable_heartbeat()->set_beat(1);
  *beat.mutable_heartbeat()->add_receipts() = ReceiptOf(1, 1000);
  for (int second = 0; second < 10'000; ++second) {
    host_.now.ns += kSecondNs;
    counting_port_.OnEvent(beat);
    host_.jobs.clear();
  }
  EXPECT_TRUE(counting_.ends.empty());
  for (int i = 1; i < 1000; ++i)
    *beat.mutable_heartbeat()->add_receipts() = ReceiptOf(1, 1000);
  for (int second = 0; second < 10; ++second) {
    host_.now.ns += kSecondNs;
    counting_port_.OnEvent(beat);
  }
  ASSERT_EQ(counting_.ends.size(), 1u);
  EXPECT_EQ(counting_.ends[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LE(host_.jobs.size(), 5u) << "what is beyond is not checked";
  host_.jobs.clear();
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

TEST_F(ReceiptsTest, WhoContradictsItsReceipts_IsSetAside) {
  writes_.receipts_refused = absl::AbortedError("came before with other content");
  Tell(ReceiptOf(1, 1000));
  EXPECT_EQ(watcher_.offences, std::vector<std::string>{"receipt_conflict"});
  EXPECT_EQ(watcher_.set_aside.size(), 1u);
  RunAll(writes_.jobs);
  EXPECT_TRUE(LastChange()->ends());  // its leases stop
}

TEST_F(ReceiptsTest, WhoContradictsItsReceiptsAndLeaves_IsSetAsideAllTheSame) {
  writes_.receipts_refused = absl::AbortedError("came before with other content");
  proto::WorkerEvent event;
  *event.mutable_receipt() = ReceiptOf(1, 1000);
  counting_port_.OnEvent(event);
  RunAll(host_.jobs);
  counting_port_.OnGone();
  driver_.OnTick();
  RunAll(writes_.jobs);
  EXPECT_EQ(watcher_.set_aside.size(), 1u);
  RunAll(host_.jobs);
  EXPECT_EQ(quarantine_.rows.size(), 1u);
}

// It waits for the disk beside that of the worker which has the device.
TEST_F(ReceiptsTest, ALiarsReceiptOfAnothersDevice_DisplacesNothing_AndIsItsOwnFault) {
  const signing::SigningKey rogues = signing::SigningKey::Make();
  Join(rogue_port_, 'r', rogues.public_key());
  proto::WorkerEvent lie;
  for (uint64_t number = 1; number <= 3; ++number) {
    *lie.mutable_receipt() = ReceiptOf(number, 1000);
    lie.mutable_receipt()->set_physical_device(signing::PhysicalDevice(rogues.public_key(), 0));
    signing::Sign(rogues, *lie.mutable_receipt());
    rogue_port_.OnEvent(lie);
    if (number == 2) {
      lie.Clear();
      *lie.mutable_receipt() = ReceiptOf(7, 7000);
      counting_port_.OnEvent(lie);
    }
  }
  RunAll(host_.jobs);
  driver_.OnTick();
  ASSERT_EQ(writes_.receipts.size(), 3u);  // the liar's last two, and the other's
  EXPECT_EQ(writes_.receipts[0].number(), 7u);
  writes_.jobs.clear();
  writes_.receipts_refused = absl::AbortedError("came before with other content");
  rogue_port_.OnEvent(lie);  // and then what is true, and good
  proto::WorkerEvent truth;
  *truth.mutable_receipt() = ReceiptOf(8, 8000);
  counting_port_.OnEvent(truth);
  RunAll(host_.jobs);
  driver_.OnTick();
  writes_.jobs.erase(writes_.jobs.begin());  // the honest one is the first, and was not refused
  RunAll(writes_.jobs);
  ASSERT_EQ(watcher_.set_aside.size(), 1u);
  EXPECT_TRUE(watcher_.set_aside[0].starts_with("gpu#3")) << watcher_.set_aside[0];
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
