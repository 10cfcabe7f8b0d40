// Receipts in the books (RR1 to RR3 of receipt_rows.h), and the check that no device is metered for
// more time than passed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gateway/ledger/device_time.h"
#include "gateway/proof/receipt_rows.h"
#include "storage/sqlite.h"
#include "tests/gateway/support.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway::test {
namespace {

class ReceiptRowsTest : public ::testing::Test {
 protected:
  ReceiptRowsTest() {
    EXPECT_TRUE(
        rows_
            ->NameDevices(kLease, std::vector<std::string>{
                                      signing::PhysicalDevice(key_.public_key(), 0),
                                      signing::PhysicalDevice(other_.public_key(), 2)})
            .ok());
  }
  proto::Receipt ReceiptOf(uint64_t number, uint64_t usable_ms, uint64_t busy_ms = 0,
                           uint32_t place = 0) {
    proto::Receipt receipt;
    receipt.set_session_id(kLease.session.Bytes());
    receipt.set_grant(kLease.grant);
    receipt.set_device(place);
    receipt.set_number(number);
    receipt.set_usable_ms(usable_ms);
    receipt.set_busy_ms(busy_ms);
    const signing::SigningKey& key = place == 0 ? key_ : other_;
    receipt.set_physical_device(signing::PhysicalDevice(key.public_key(), 2 * place));
    signing::Sign(key, receipt);
    return receipt;
  }
  absl::Status Keep(const proto::Receipt& receipt) {
    const auto kept = rows_->Keep({&receipt, 1});
    return kept.ok() ? kept->front() : kept.status();
  }
  uint64_t Usable() {
    const auto receipts = ValueOrDie(rows_->Of(kLease));
    return receipts.empty() ? 0 : receipts[0].usable_ms();
  }

  const LeaseId kLease = DeviceOf(1).lease;
  TempDir dir_;
  std::unique_ptr<ReceiptRows> rows_ = ValueOrDie(ReceiptRows::Open(dir_.File("books.db")));
  const signing::SigningKey key_ = signing::SigningKey::Make(),
                            other_ = signing::SigningKey::Make();
};

TEST_F(ReceiptRowsTest, Shortfalls_AreLeasesChargedForMoreThanWasSigned) {
  const auto ledger = OpenLedger(dir_.File("books.db"));
  ASSERT_TRUE(PostHeld(*ledger, std::vector<Charge>{ChargeFor(DeviceOf(1), 0, 30)}, WallTime{1000})
                  .ok());
  EXPECT_TRUE(ValueOrDie(rows_->Shortfalls(10)).empty()) << "without a receipt nothing is said";
  ASSERT_TRUE(Keep(ReceiptOf(1, 30'000 - kReceiptSlackMs - 1)).ok());
  const std::vector<ReceiptShortfall> expected = {
      {DeviceOf(1), signing::PhysicalDevice(key_.public_key(), 0), 30'000, 19'999}};
  EXPECT_EQ(ValueOrDie(rows_->Shortfalls(10)), expected);
  EXPECT_TRUE(ValueOrDie(rows_->Shortfalls(0)).empty());
  ASSERT_TRUE(Keep(ReceiptOf(2, 30'000 - kReceiptSlackMs)).ok());
  EXPECT_TRUE(ValueOrDie(rows_->Shortfalls(10)).empty());
}

// The gateway crashed before the lease's row was there, and the number is used again.
TEST_F(ReceiptRowsTest, NameDevices_TheLastNamesCount) {
  const signing::SigningKey before = signing::SigningKey::Make();
  const LeaseId lease = DeviceOf(2).lease;
  for (const signing::SigningKey* key : {&before, &key_})
    ASSERT_TRUE(rows_
                    ->NameDevices(lease, std::vector<std::string>{signing::PhysicalDevice(
                                             key->public_key(), 0)})
                    .ok());
  proto::Receipt receipt = ReceiptOf(1, 1000);
  receipt.set_session_id(lease.session.Bytes());
  receipt.set_grant(lease.grant);
  signing::Sign(key_, receipt);
  EXPECT_TRUE(Keep(receipt).ok());
}

TEST_F(ReceiptRowsTest, Keep_KeepsTheLast) {
  EXPECT_TRUE(Keep(ReceiptOf(1, 1000)).ok());
  EXPECT_TRUE(Keep(ReceiptOf(4, 4000, 3000)).ok());  // two were lost
  EXPECT_TRUE(Keep(ReceiptOf(4, 4000, 3000)).ok());  // again
  EXPECT_TRUE(Keep(ReceiptOf(2, 2000)).ok());        // late
  EXPECT_TRUE(Keep(ReceiptOf(1, 7000, 0, /*place=*/1)).ok());
  EXPECT_EQ(Usable(), 4000u);
  const auto receipts = ValueOrDie(rows_->Of(kLease));
  ASSERT_EQ(receipts.size(), 2u);
  for (const proto::Receipt& receipt : receipts)
    EXPECT_TRUE(signing::CheckReceipt(receipt).ok());
  rows_ = ValueOrDie(ReceiptRows::Open(dir_.File("books.db")));
  EXPECT_EQ(Usable(), 4000u);
  EXPECT_TRUE(Keep(ReceiptOf(5, 5000, 3000)).ok()) << "its devices are still named";
}

TEST_F(ReceiptRowsTest, Keep_FindsWhatContradicts) {
  ASSERT_TRUE(Keep(ReceiptOf(5, 5000, 2000)).ok());
  const struct {
    const char* what;
    proto::Receipt receipt;
  } conflicts[] = {
      {"the same number, more", ReceiptOf(5, 5001, 2000)},
      {"the same number, less", ReceiptOf(5, 5000, 1999)},
      {"later, less usable", ReceiptOf(6, 4999, 2000)},
      {"later, less busy", ReceiptOf(6, 6000, 1999)},
      {"earlier, more", ReceiptOf(4, 5001, 2000)},
  };
  for (const auto& [what, receipt] : conflicts)
    EXPECT_TRUE(absl::IsAborted(Keep(receipt))) << what << Keep(receipt);
  EXPECT_EQ(Usable(), 5000u);
}

TEST_F(ReceiptRowsTest, Keep_RefusesAnotherWorkersLease) {
  proto::Receipt forged = ReceiptOf(1, 1000);
  forged.set_physical_device(signing::PhysicalDevice(other_.public_key(), 0));
  signing::Sign(other_, forged);
  EXPECT_TRUE(absl::IsPermissionDenied(Keep(forged)));
  proto::Receipt unknown = ReceiptOf(1, 1000);
  unknown.set_grant(99);
  signing::Sign(key_, unknown);
  EXPECT_TRUE(absl::IsPermissionDenied(Keep(unknown)));
  EXPECT_TRUE(ValueOrDie(rows_->Of(kLease)).empty());
}

// A worker that signs for less than is charged is not to close the gateway.
TEST_F(ReceiptRowsTest, Verify_LooksAtSignaturesAlone) {
  const auto ledger = OpenLedger(dir_.File("books.db"));
  ASSERT_TRUE(PostHeld(*ledger, std::vector<Charge>{ChargeFor(DeviceOf(1), 0, 10)}, kNoon).ok());
  ASSERT_TRUE(Keep(ReceiptOf(1, 10'000)).ok());
  const auto verified = rows_->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_EQ(*verified, 1);
  ASSERT_TRUE(PostHeld(*ledger, std::vector<Charge>{ChargeFor(DeviceOf(1), 10, 13)}, kNoon).ok());
  EXPECT_TRUE(rows_->Verify().ok());
  const auto db = ValueOrDie(storage::Database::Open(dir_.File("books.db")));
  ASSERT_TRUE(db->Execute("UPDATE receipt SET usable_ms = usable_ms + 3000").ok());
  EXPECT_TRUE(absl::IsDataLoss(rows_->Verify().status()));
}

// ---- DeviceTime

MonoTime At(int64_t ms) { return {ms * 1'000'000}; }
Charge Of(uint64_t session, int64_t to_ms, uint32_t device = 0) {
  Charge charge = ChargeFor(DeviceOf(session, 1, device), 0, 0);
  charge.to_ms = to_ms;
  return charge;
}

TEST(DeviceTimeTest, Charge_ForMoreThanPassed_IsRefused) {
  DeviceTime time;
  time.Begin(DeviceOf(1).lease, std::vector<std::string>{"a/0", "a/1"}, At(1000));
  EXPECT_TRUE(time.Check(Of(1, 500), At(1500)).ok());
  EXPECT_TRUE(time.Check(Of(1, 500, 1), At(1500)).ok());
  EXPECT_TRUE(absl::IsInternal(time.Check(Of(1, 501), At(1500))));
  EXPECT_TRUE(absl::IsInternal(time.Check(Of(1, 1, 2), At(1500))));
  EXPECT_TRUE(absl::IsInternal(time.Check(Of(2, 1), At(1500))));
}

TEST(DeviceTimeTest, Lease_ThatEnded_IsChargedForNothingMore) {
  DeviceTime time;
  time.Begin(DeviceOf(1).lease, std::vector<std::string>{"a/0"}, At(1000));
  EXPECT_TRUE(time.Check(Of(1, 1000), At(2000)).ok());
  time.End(DeviceOf(1).lease);
  EXPECT_TRUE(absl::IsInternal(time.Check(Of(1, 1000), At(9000))));
}

// A worker that has joined again while its old connection is not known to be gone.
TEST(DeviceTimeTest, Device_InTwoLeases_IsMeteredOnce) {
  DeviceTime time;
  time.Begin(DeviceOf(1).lease, std::vector<std::string>{"a/0"}, At(1000));
  time.Begin(DeviceOf(2).lease, std::vector<std::string>{"a/0"}, At(3000));
  EXPECT_TRUE(time.Check(Of(1, 2000), At(9000)).ok());
  EXPECT_TRUE(absl::IsInternal(time.Check(Of(1, 2001), At(9000))));
  EXPECT_TRUE(time.Check(Of(2, 6000), At(9000)).ok());
  time.End(DeviceOf(1).lease);
  EXPECT_TRUE(absl::IsInternal(time.Check(Of(1, 2001), At(9000))));
  EXPECT_TRUE(time.Check(Of(2, 6000), At(9000)).ok());
}

}  // namespace
}  // namespace outboard::gateway::test
