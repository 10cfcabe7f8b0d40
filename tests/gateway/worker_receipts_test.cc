// Receipts of workers for the device time of their leases: when they begin, which are kept, and
// who is set aside for them: D7 of core_driver.cc.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gateway/lying_worker_world.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway {
namespace {

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
