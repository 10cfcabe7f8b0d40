// What a worker counts of its leases: cumulative, signed, and told until the gateway has it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/temp_folder.h"
#include "wire/proof/receipt.h"
#include "worker/receipts/lease_counter.h"
#include "worker/supervisor/join/identity.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

const std::string kSession(16, 's');

class LeaseCounterTest : public ::testing::Test {
 protected:
  std::vector<proto::WorkerEvent> Change(uint64_t grant, bool ends, uint32_t device = 0,
                                         uint32_t place = 0) {
    proto::GatewayCommand command;
    proto::LeaseChange& change = *command.mutable_lease_change();
    change.set_session_id(kSession);
    change.set_grant(grant);
    change.add_devices(device);
    change.add_places(place);
    change.set_ends(ends);
    return counter_.On(command, now_);
  }
  std::vector<proto::Receipt> Beat() {
    proto::Heartbeat beat;
    beat.set_beat(++beat_);
    counter_.AddTo(beat, now_);
    for (const proto::Receipt& receipt : beat.receipts())
      EXPECT_TRUE(signing::CheckReceipt(receipt).ok());
    return {beat.receipts().begin(), beat.receipts().end()};
  }
  void Ack(uint64_t beat) {
    proto::GatewayCommand command;
    command.mutable_heartbeat_ack()->set_beat(beat);
    counter_.On(command, now_);
  }
  void Welcome() {
    proto::GatewayCommand command;
    command.mutable_welcome();
    counter_.On(command, now_);
    beat_ = 0;
  }
  void Pass(int ms) { now_ += milliseconds(ms); }
  void Works(bool works, uint32_t device = 0) { counter_.Works(kSession, device, works, now_); }

  const signing::SigningKey key_ = signing::SigningKey::Make();
  LeaseCounter counter_{key_};
  LeaseCounter::Clock::time_point now_{};
  uint64_t beat_ = 0;
};

TEST_F(LeaseCounterTest, Receipts_CountUsableAndBusyTime) {
  Change(1, false, /*device=*/3);
  Pass(1000);
  Works(true, 3);
  Pass(400);
  Works(false, 3);
  Pass(100);
  std::vector<proto::Receipt> receipts = Beat();
  ASSERT_EQ(receipts.size(), 1u);
  EXPECT_EQ(receipts[0].number(), 1u);
  EXPECT_EQ(receipts[0].usable_ms(), 1500u);
  EXPECT_EQ(receipts[0].busy_ms(), 400u);
  EXPECT_EQ(receipts[0].physical_device(), signing::PhysicalDevice(key_.public_key(), 3));
  Works(true, 3);
  Pass(500);
  receipts = Beat();
  ASSERT_EQ(receipts.size(), 1u);
  EXPECT_EQ(receipts[0].number(), 2u);
  EXPECT_EQ(receipts[0].usable_ms(), 2000u);
  EXPECT_EQ(receipts[0].busy_ms(), 900u);
}

TEST_F(LeaseCounterTest, End_IsToldAtOnceAndUntilItIsAcknowledged) {
  Change(1, false);
  Pass(700);
  const std::vector<proto::WorkerEvent> told = Change(1, true);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].receipt().usable_ms(), 700u);
  Pass(300);
  for (int i = 0; i < 3; ++i) {  // it is lost, and so are two beats
    const std::vector<proto::Receipt> receipts = Beat();
    ASSERT_EQ(receipts.size(), 1u);
    EXPECT_EQ(receipts[0].SerializeAsString(), told[0].receipt().SerializeAsString());
  }
  Ack(1);
  EXPECT_TRUE(Beat().empty());
}

TEST_F(LeaseCounterTest, LeaseAnew_CountsFromZero) {
  Change(1, false);
  Pass(500);
  Change(1, true);
  Pass(500);
  Change(2, false);
  Pass(250);
  std::vector<proto::Receipt> receipts = Beat();
  ASSERT_EQ(receipts.size(), 2u);
  EXPECT_EQ(receipts[0].grant(), 2u);
  EXPECT_EQ(receipts[0].usable_ms(), 250u);
  EXPECT_EQ(receipts[1].grant(), 1u);
  EXPECT_EQ(receipts[1].usable_ms(), 500u);
}

TEST_F(LeaseCounterTest, ExecutorThatEnds_IsUsableNoLonger) {
  Change(1, false);
  Works(true);
  Pass(400);
  counter_.Gone(kSession, 0, now_);
  Pass(5000);
  const std::vector<proto::WorkerEvent> told = Change(1, true);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].receipt().usable_ms(), 400u);
  EXPECT_EQ(told[0].receipt().busy_ms(), 400u);
}

// The receipts of what ran with the gateway before go to the one after it.
TEST_F(LeaseCounterTest, Welcome_EndsWhatRuns) {
  Change(1, false);
  Pass(600);
  Beat();
  Welcome();
  Pass(600);
  const std::vector<proto::Receipt> receipts = Beat();
  ASSERT_EQ(receipts.size(), 1u);
  EXPECT_EQ(receipts[0].number(), 2u);
  EXPECT_EQ(receipts[0].usable_ms(), 600u);
  Ack(1);
  EXPECT_TRUE(Beat().empty());
}

TEST_F(LeaseCounterTest, Changes_ThatMakeNoSense_ChangeNothing) {
  EXPECT_TRUE(Change(9, true).empty());
  Change(1, false);
  Pass(100);
  Change(1, false);  // again
  Pass(100);
  proto::GatewayCommand uneven;
  uneven.mutable_lease_change()->set_session_id(kSession);
  uneven.mutable_lease_change()->set_grant(5);
  uneven.mutable_lease_change()->add_devices(0);
  EXPECT_TRUE(counter_.On(uneven, now_).empty());
  const std::vector<proto::Receipt> receipts = Beat();
  ASSERT_EQ(receipts.size(), 1u);
  EXPECT_EQ(receipts[0].usable_ms(), 200u);
}

TEST(ReceiptKeyTest, Key_IsKeptWithTheIdentityOfItsFile) {
  test::TempFolder folder;
  const std::string path = folder.path() + "/worker";
  const std::string identity = *OpenIdentity(path);
  const auto first = OpenReceiptKey(path, identity), again = OpenReceiptKey(path, identity);
  ASSERT_TRUE(first.ok() && again.ok()) << first.status() << again.status();
  EXPECT_EQ(first->public_key(), again->public_key());
  EXPECT_NE(OpenReceiptKey(path, NewIdentity())->public_key(), first->public_key());
  EXPECT_NE(OpenReceiptKey(folder.path() + "/none", identity)->public_key(), first->public_key());
}

}  // namespace
}  // namespace outboard::worker
