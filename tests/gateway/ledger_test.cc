// The books, case by case. L1 to L8 are the invariants of ledger.h.
#include "gateway/ledger/ledger.h"

#include <gtest/gtest.h>

#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

class LedgerTest : public ::testing::Test {
 protected:
  absl::Status PostOne(const Charge& charge) {
    return PostHeld(*ledger, std::span(&charge, 1), kNoon).status();
  }

  TempDir dir;
  std::unique_ptr<Ledger> ledger = OpenLedger(dir.File("books.db"));
};

TEST_F(LedgerTest, ChargesMoveMoneyFromTenantToRevenue) {
  const Charge charges[] = {ChargeFor(DeviceOf(1), 0, 5), ChargeFor(DeviceOf(1, 1, 1), 0, 4),
                            ChargeFor(DeviceOf(1), 5, 3600)};
  const auto postings = PostHeld(*ledger, charges, kNoon);
  ASSERT_TRUE(postings.ok()) << postings.status();
  ASSERT_EQ(postings->size(), 3u);
  EXPECT_EQ(postings->at(2).number, 3);
  const int64_t due = 500'000 + ChargeAfter(kDefaultPricePerHour, 4000).value;
  EXPECT_EQ(ledger->Balance(TenantId{1})->value, -due);
  EXPECT_EQ(ledger->Balance(LedgerAccount::Revenue())->value, due);
  EXPECT_EQ(ledger->Balance(TenantId{2})->value, 0);

  ASSERT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{1'000'000}, "payment-1", kNoon).ok());
  EXPECT_EQ(ledger->Balance(TenantId{1})->value, 1'000'000 - due);
  const auto report = ledger->Verify();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->entries, 4);
  EXPECT_EQ(report->lines, 8);
}

// Time of state that is parked or stored is nobody's time on a device; its amount counts.
TEST_F(LedgerTest, EachStateIsCharged_AndTimeIsThatOfDevices) {
  std::vector<Charge> charges;
  for (const UseState use :
       {UseState::kRun, UseState::kHeld, UseState::kParked, UseState::kStored}) {
    charges.push_back(ChargeFor(DeviceOf(1, charges.size() + 1), 0, 3600));
    charges.back().use = use;
  }
  ASSERT_TRUE(PostHeld(*ledger, charges, kNoon).ok());
  EXPECT_EQ(ledger->UsageOf(TenantId{1})->device_ms, 2 * 3'600'000);
  EXPECT_EQ(ledger->UsageOf(TenantId{1})->amount.value, 4 * 500'000);
  EXPECT_EQ(ledger->UsageOfSession(SessionId{0xab, 1})->device_ms, 2 * 3'600'000);
  EXPECT_EQ(ledger->Balance(TenantId{1})->value, -4 * 500'000);
  const auto report = ledger->Verify();
  EXPECT_TRUE(report.ok()) << report.status();
}

TEST_F(LedgerTest, L3AStateIsThatOfItsLease) {
  Charge charge = ChargeFor(DeviceOf(1), 0, 5);
  charge.use = UseState::kParked;
  ASSERT_TRUE(PostOne(charge).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(PostOne(ChargeFor(DeviceOf(1), 0, 5)))) << "another body";
  EXPECT_TRUE(absl::IsFailedPrecondition(PostOne(ChargeFor(DeviceOf(1), 5, 9))));
  charge.use = static_cast<UseState>(4);
  EXPECT_TRUE(absl::IsInvalidArgument(PostOne(charge)));
}

TEST_F(LedgerTest, PostingAgainReturnsTheFirstPosting) {
  const Charge charges[] = {ChargeFor(DeviceOf(1), 0, 5), ChargeFor(DeviceOf(1), 5, 9)};
  ASSERT_TRUE(PostHeld(*ledger, charges, kNoon).ok());
  const std::string head = ledger->Verify()->head_hash;
  const auto again = PostHeld(*ledger, charges, WallTime{kNoon.unix_ms + 5000});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->at(1).number, 2);
  EXPECT_TRUE(again->at(1).replayed);
  EXPECT_EQ(ledger->Verify()->head_hash, head);
}

TEST_F(LedgerTest, AKeyWithAnotherBodyIsRefused) {
  ASSERT_TRUE(PostOne(ChargeFor(DeviceOf(1), 0, 5)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(PostOne(ChargeFor(DeviceOf(1), 0, 6))));     // longer
  EXPECT_TRUE(absl::IsAlreadyExists(PostOne(ChargeFor(DeviceOf(1), 0, 5, 2))));  // another tenant
  Charge regranted = ChargeFor(DeviceOf(1), 0, 5);  // a lease's name used a second time
  regranted.granted_at.unix_ms += 1;
  EXPECT_TRUE(absl::IsAlreadyExists(PostOne(regranted)));
  ASSERT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{5}, "k", kNoon).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(ledger->Credit(TenantId{1}, MicroUsd{6}, "k", kNoon).status()));
  EXPECT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{5}, "k", kNoon)->replayed);
}

TEST_F(LedgerTest, SecondsNeitherOverlapNorSkip) {
  ASSERT_TRUE(PostOne(ChargeFor(DeviceOf(1), 0, 5)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(PostOne(ChargeFor(DeviceOf(1), 3, 8))));
  EXPECT_TRUE(absl::IsAlreadyExists(PostOne(ChargeFor(DeviceOf(1), 4, 5))));
  EXPECT_TRUE(absl::IsFailedPrecondition(PostOne(ChargeFor(DeviceOf(1), 6, 8))));
  EXPECT_TRUE(absl::IsFailedPrecondition(PostOne(ChargeFor(DeviceOf(2), 1, 2))));
  EXPECT_TRUE(absl::IsFailedPrecondition(PostOne(ChargeFor(DeviceOf(1), 5, 8, 2))));
  EXPECT_TRUE(absl::IsFailedPrecondition(PostOne(ChargeFor(DeviceOf(1), 5, 8, 1, MicroUsd{1}))));
  EXPECT_TRUE(PostOne(ChargeFor(DeviceOf(1), 5, 8)).ok());
  EXPECT_TRUE(
      PostOne(ChargeFor(DeviceOf(1, 2), 0, 1, 1, MicroUsd{1})).ok());  // a new grant, a new price
  EXPECT_TRUE(ledger->Verify().ok());
}

TEST_F(LedgerTest, ABatchIsAllOrNothing) {
  const Charge charges[] = {ChargeFor(DeviceOf(1), 0, 5), ChargeFor(DeviceOf(2), 0, 5),
                            ChargeFor(DeviceOf(1), 7, 9)};
  EXPECT_TRUE(absl::IsFailedPrecondition(PostHeld(*ledger, charges, kNoon).status()));
  EXPECT_EQ(ledger->Verify()->entries, 0);
  EXPECT_EQ(ledger->Balance(LedgerAccount::Revenue())->value, 0);
}

TEST_F(LedgerTest, UnsoundChargesAreRefused) {
  std::vector<Charge> unsound;
  const auto spoil = [&](auto change) {
    change(unsound.emplace_back(ChargeFor(DeviceOf(1), 0, 5)));
  };
  spoil([](Charge& c) { c.amount.value += 1; });
  spoil([](Charge& c) { c.amount.value = -c.amount.value; });
  spoil([](Charge& c) { c.to_ms = 0; });
  spoil([](Charge& c) { c.from_ms = -1; });
  spoil([](Charge& c) { c.to_ms = kLeaseMsMax + 1; });
  spoil([](Charge& c) { c.price_per_hour.value = -500'000; });
  spoil([](Charge& c) { c.price_per_hour.value = INT64_MAX; });
  spoil([](Charge& c) { c.tenant.value = 0; });
  spoil([](Charge& c) { c.tenant.value = INT64_MAX; });
  spoil([](Charge& c) { c.device.lease.grant = UINT64_MAX; });
  for (size_t i = 0; i < unsound.size(); ++i) {
    EXPECT_TRUE(absl::IsInvalidArgument(PostOne(unsound[i]))) << i;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      PostHeld(*ledger, std::vector<Charge>(kChargesPerPostMax + 1, unsound[0]), kNoon).status()));
  EXPECT_EQ(ledger->Verify()->entries, 0);
}

TEST_F(LedgerTest, UnsoundTransfersAreRefused) {
  const LedgerLine plus{LedgerAccount::Tenant(TenantId{1}), MicroUsd{5}};
  const LedgerLine minus{LedgerAccount::Payments(), MicroUsd{-5}};
  const std::vector<Transfer> unsound = {
      {.key = "", .lines = {plus, minus}},
      {.key = std::string(kNameBytesMax + 1, 'k'), .lines = {plus, minus}},
      {.key = "use/1", .lines = {plus, minus}},
      {.key = "k", .memo = std::string(kMemoBytesMax + 1, 'm'), .lines = {plus, minus}},
      {.key = "k", .lines = {plus}},
      {.key = "k", .lines = {}},
      {.key = "k", .lines = {plus, plus, minus, minus}},
      {.key = "k", .lines = {plus, {LedgerAccount::Payments(), MicroUsd{-4}}}},
      {.key = "k", .lines = {plus, {LedgerAccount{"petty cash"}, MicroUsd{-5}}}},
      {.key = "k", .lines = {plus, {LedgerAccount{"tenant:01"}, MicroUsd{-5}}}},
      {.key = "k",
       .lines = {{LedgerAccount::Revenue(), MicroUsd{INT64_MIN}},
                 {LedgerAccount::Payments(), MicroUsd{INT64_MIN}}}},
  };
  for (size_t i = 0; i < unsound.size(); ++i) {
    EXPECT_TRUE(absl::IsInvalidArgument(ledger->PostTransfer(unsound[i], kNoon).status())) << i;
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(ledger->Credit(TenantId{1}, MicroUsd{0}, "k", kNoon).status()));
  EXPECT_EQ(ledger->Verify()->entries, 0);
}

TEST_F(LedgerTest, ABalanceDoesNotOverflow) {
  ASSERT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{kAmountMaxMicroUsd}, "a", kNoon).ok());
  EXPECT_TRUE(absl::IsOutOfRange(ledger->Credit(TenantId{1}, MicroUsd{1}, "b", kNoon).status()));
  EXPECT_EQ(ledger->Balance(TenantId{1})->value, kAmountMaxMicroUsd);
  EXPECT_EQ(ledger->Verify()->entries, 1);
}

TEST_F(LedgerTest, StampsNeverGoBack) {
  const WallTime hours_ago{kNoon.unix_ms - 7'200'000};
  ASSERT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{1}, "a", kNoon).ok());
  ASSERT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{1}, "b", hours_ago).ok());
  const auto rows = ledger->StatementOf(LedgerAccount::Tenant(TenantId{1}));
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ(rows->at(1).at, kNoon);
}

TEST_F(LedgerTest, StatementsComeInPages) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(PostOne(ChargeFor(DeviceOf(1), i, i + 1)).ok());
  }
  ASSERT_TRUE(PostOne(ChargeFor(DeviceOf(2), 0, 1, 2)).ok());
  const auto first = ledger->StatementOf(LedgerAccount::Tenant(TenantId{1}), 0, 3);
  ASSERT_EQ(first->size(), 3u);
  const auto rest =
      ledger->StatementOf(LedgerAccount::Tenant(TenantId{1}), first->back().number, 3);
  ASSERT_EQ(rest->size(), 2u);
  EXPECT_EQ(rest->at(0).device, DeviceOf(1));
  EXPECT_EQ(rest->at(0).from_ms, 3000);
  EXPECT_EQ(rest->at(0).amount.value, -139);  // floor(555.5) - floor(416.6)
}

TEST_F(LedgerTest, UsageIsTheSumOfARangeOfEntries) {
  EXPECT_EQ(*ledger->LastEntry(), 0);
  EXPECT_EQ(*ledger->UsageOfAll(), Usage{});
  const Charge charges[] = {
      ChargeFor(DeviceOf(7, 1, 0), 0, 10), ChargeFor(DeviceOf(7, 1, 1), 0, 10),
      ChargeFor(DeviceOf(7, 2, 0), 0, 3),  ChargeFor(DeviceOf(8), 0, 3600),
      ChargeFor(DeviceOf(9), 0, 1, 2),
  };
  ASSERT_TRUE(PostHeld(*ledger, charges, kNoon).ok());
  ASSERT_TRUE(ledger->Credit(TenantId{1}, MicroUsd{5}, "credit", kNoon).ok());  // no use
  EXPECT_EQ(*ledger->LastEntry(), 6);
  const Usage of_7{23'000, {1388 + 1388 + 416}};
  EXPECT_EQ(*ledger->UsageOfSession(SessionId{0xab, 7}), of_7);
  EXPECT_EQ(*ledger->UsageOfSession(SessionId{1, 1}), Usage{});
  const Usage of_tenant{3'623'000, {of_7.amount.value + 500'000}};
  EXPECT_EQ(*ledger->UsageOf(TenantId{1}), of_tenant);
  EXPECT_EQ(of_tenant.amount.value, 5 - ledger->Balance(TenantId{1})->value);
  EXPECT_EQ(*ledger->UsageOf(TenantId{1}, {.since = kNoon}), of_tenant);
  EXPECT_EQ(*ledger->UsageOf(TenantId{1}, {.since = WallTime{kNoon.unix_ms + 1}}), Usage{});
  EXPECT_EQ(*ledger->UsageOf(TenantId{1}, {.last = 3}), of_7);
  EXPECT_EQ(*ledger->UsageOfAll(), (Usage{3'624'000, {of_tenant.amount.value + 138}}));
}

TEST_F(LedgerTest, TheMetersChargesAreTheLedgers) {
  Meter meter({.ms_per_charge = 4000});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(
      meter.Grant({.device = device, .tenant = TenantId{1}, .granted_at = kNoon}, {0}).ok());
  for (int i = 1; i <= 30; ++i) {
    ASSERT_TRUE(PostHeld(*ledger, *meter.Confirm(device, {i * kSecond / 3}), kNoon).ok());
  }
  ASSERT_TRUE(PostHeld(*ledger, *meter.Release(device, {11 * kSecond}), kNoon).ok());
  EXPECT_EQ(ledger->UsageOf(TenantId{1})->device_ms, 11'000);
  EXPECT_EQ(ledger->UsageOf(TenantId{1})->amount, ChargeAfter(kDefaultPricePerHour, 11'000));
}

TEST_F(LedgerTest, AFullFileIsNamedAndLosesNothing) {
  const std::string path = dir.File("small.db");
  // 40 pages of 4 KiB: the tables take about a dozen.
  std::unique_ptr<Ledger> small = OpenLedger(path, {.pages_max = 40});
  int64_t posted = 0;
  absl::Status status;
  for (; posted < 2000 && status.ok(); ++posted) {
    const Charge charge = ChargeFor(DeviceOf(1), posted, posted + 1);
    status = PostHeld(*small, std::span(&charge, 1), kNoon).status();
  }
  --posted;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(small->Verify()->entries, posted);
  small = OpenLedger(path);
  const Charge refused = ChargeFor(DeviceOf(1), posted, posted + 1);
  EXPECT_TRUE(PostHeld(*small, std::span(&refused, 1), kNoon).ok());
  EXPECT_EQ(small->Balance(TenantId{1})->value,
            -ChargeAfter(kDefaultPricePerHour, 1000 * (posted + 1)).value);
  EXPECT_TRUE(small->Verify().ok());
}

}  // namespace
}  // namespace outboard::gateway::test
