// Holds and budgets: L10, and that nothing passes a limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "gateway/ledger/ledger.h"
#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

constexpr MicroUsd kDollarAMinute{60'000'000};
constexpr int64_t kMinuteMs = 60'000;
constexpr MicroUsd kDollar{1'000'000};

class LedgerHoldsTest : public ::testing::Test {
 protected:
  HoldRequest RequestFor(uint64_t session, int64_t to_ms = kMinuteMs, int64_t tenant = 1) {
    return {.lease = DeviceOf(session).lease,
            .tenant = TenantId{tenant},
            .key_id = "0123456789abcdef",
            .prices_per_hour = {kDollarAMinute},
            .to_ms = to_ms};
  }
  HoldAnswer Hold(const HoldRequest& request, MicroUsd limit = {}) {
    return ValueOrDie(ledger->Hold(request, limit));
  }
  absl::Status Use(uint64_t session, int64_t from_ms, int64_t to_ms) {
    Charge charge = ChargeFor(DeviceOf(session), 0, 1, 1, kDollarAMinute);
    charge.from_ms = from_ms;
    charge.to_ms = to_ms;
    charge.amount = {ChargeAfter(kDollarAMinute, to_ms).value -
                     ChargeAfter(kDollarAMinute, from_ms).value};
    return ledger->Post({&charge, 1}, kNoon).status();
  }
  void Credit(MicroUsd amount, const std::string& key = "payment") {
    ASSERT_TRUE(ledger->Credit(TenantId{1}, amount, key, kNoon).ok());
  }
  void TearDown() override {
    const auto verified = ledger->Verify();
    EXPECT_TRUE(verified.ok()) << verified.status();
  }
  SpendBudget Account() { return ValueOrDie(ledger->BudgetOf(TenantId{1})); }

  TempDir dir;
  std::unique_ptr<Ledger> ledger = OpenLedger(dir.File("books.db"));
};

TEST_F(LedgerHoldsTest, NoCredit_NothingIsHeld) {
  const HoldAnswer answer = Hold(RequestFor(1));
  EXPECT_EQ(answer.funded_ms, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(answer.why)) << answer.why;
  EXPECT_EQ(Account().held.value, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Use(1, 0, 1)));  // what is not held is not charged
}

TEST_F(LedgerHoldsTest, NoLimit_HoldsWithoutCredit) {
  EXPECT_EQ(Hold(RequestFor(1), kNoCreditLimit).funded_ms, kMinuteMs);
  EXPECT_EQ(Account().held, kDollar);
}

TEST_F(LedgerHoldsTest, AMinuteIsHeldUsedAndTheRestGivenBack) {
  Credit({3 * kDollar.value});
  EXPECT_EQ(Hold(RequestFor(1)).funded_ms, kMinuteMs);
  EXPECT_EQ(Hold(RequestFor(1)).funded_ms, kMinuteMs);  // an answer was lost
  EXPECT_EQ(Account().held, kDollar);
  EXPECT_TRUE(Use(1, 0, 15'000).ok());
  EXPECT_TRUE(Use(1, 0, 15'000).ok());  // posted again
  EXPECT_EQ(Account().held.value, 750'000);
  EXPECT_EQ(Account().spent.value, 250'000);
  EXPECT_TRUE(absl::IsFailedPrecondition(Use(1, 15'000, kMinuteMs + 1)));
  EXPECT_EQ(Hold(RequestFor(1, 2 * kMinuteMs)).funded_ms, 2 * kMinuteMs);
  EXPECT_EQ(Account().held.value, 1'750'000);
  EXPECT_TRUE(Use(1, 15'000, 75'000).ok());
  ASSERT_TRUE(ledger->EndHold(DeviceOf(1).lease).ok());
  ASSERT_TRUE(ledger->EndHold(DeviceOf(1).lease).ok());
  EXPECT_EQ(Account().held.value, 0);
  EXPECT_EQ(ledger->Balance(TenantId{1})->value, 1'750'000);
  EXPECT_TRUE(absl::IsFailedPrecondition(Use(1, 75'000, 75'001)));  // its hold has ended
}

TEST_F(LedgerHoldsTest, ARestOfTheBalanceIsHeldToTheMillisecond) {
  Credit({100'010});
  const HoldAnswer answer = Hold(RequestFor(1));
  EXPECT_EQ(answer.funded_ms, 6000);  // 6,000 ms cost 100,000, and another one more than 10
  EXPECT_TRUE(absl::IsFailedPrecondition(answer.why));
  EXPECT_TRUE(Use(1, 0, 6000).ok());
  EXPECT_EQ(Hold(RequestFor(1, 2 * kMinuteMs)).funded_ms, 6000);
  Credit(kDollar, "more");
  EXPECT_EQ(Hold(RequestFor(1, kMinuteMs)).funded_ms, kMinuteMs);
}

TEST_F(LedgerHoldsTest, LessThanASecondBeginsNothing) {
  Credit({16'000});
  EXPECT_EQ(Hold(RequestFor(1)).funded_ms, 0);
  EXPECT_EQ(Account().held.value, 0);
}

TEST_F(LedgerHoldsTest, AFreeDeviceNeedsNoCredit) {
  HoldRequest request = RequestFor(1);
  request.prices_per_hour = {MicroUsd{0}};
  EXPECT_EQ(Hold(request).funded_ms, kMinuteMs);
}

TEST_F(LedgerHoldsTest, EachLimitIsNamed) {
  Credit({100 * kDollar.value});
  HoldRequest request = RequestFor(1);
  request.session_cap = MicroUsd{500'000};
  EXPECT_EQ(Hold(request).funded_ms, 30'000);
  EXPECT_TRUE(absl::IsResourceExhausted(Hold(request).why));
  EXPECT_NE(Hold(request).why.message().find("this session"), std::string::npos);
  request.session_cap = kDollar;  // raised by a client that resumes
  EXPECT_EQ(Hold(request).funded_ms, kMinuteMs);

  ASSERT_TRUE(ledger->SetCap(BudgetScope::kKey, request.key_id, MicroUsd{1'250'000}).ok());
  HoldAnswer answer = Hold(RequestFor(2));  // one dollar is held with this key already
  EXPECT_EQ(answer.funded_ms, 15'000);
  EXPECT_TRUE(absl::IsResourceExhausted(answer.why));
  EXPECT_NE(answer.why.message().find("the key 0123456789abcdef"), std::string::npos);
  ASSERT_TRUE(ledger->SetCap(BudgetScope::kKey, request.key_id, std::nullopt).ok());

  ASSERT_TRUE(ledger->SetCap(BudgetScope::kAccount, "1", MicroUsd{1'500'000}).ok());
  answer = Hold(RequestFor(3));
  EXPECT_EQ(answer.funded_ms, 15'000);
  EXPECT_TRUE(absl::IsResourceExhausted(answer.why));
  EXPECT_NE(answer.why.message().find("the account"), std::string::npos);
  EXPECT_EQ(Account().held.value, 1'500'000);
}

TEST_F(LedgerHoldsTest, ACapThatComesDuringALease_CountsWhatWasBefore) {
  Credit({100 * kDollar.value});
  EXPECT_EQ(Hold(RequestFor(1)).funded_ms, kMinuteMs);
  ASSERT_TRUE(Use(1, 0, 15'000).ok());
  HoldRequest request = RequestFor(1, 2 * kMinuteMs);
  request.session_cap = MicroUsd{1'500'000};
  EXPECT_EQ(Hold(request).funded_ms, 90'000);
  EXPECT_TRUE(absl::IsResourceExhausted(Hold(request).why));
  EXPECT_TRUE(Use(1, 15'000, 90'000).ok());
  ASSERT_TRUE(ledger->EndHold(DeviceOf(1).lease).ok());
  EXPECT_EQ(Account().held.value, 0);
  EXPECT_TRUE(ledger->Verify().ok());
}

// Of a client that has yet to enter a session, and that may be refused.
TEST_F(LedgerHoldsTest, ATentativeCap_BoundsItsHoldAlone) {
  Credit({100 * kDollar.value});
  for (const bool has_cap : {false, true}) {
    const uint64_t grant = has_cap ? 3 : 1;
    HoldRequest first = RequestFor(grant);
    if (has_cap) first.session_cap = MicroUsd{10'000'000};
    EXPECT_EQ(Hold(first).funded_ms, kMinuteMs);
    ASSERT_TRUE(Use(grant, 0, 15'000).ok());  // a quarter of a dollar
    HoldRequest next = RequestFor(grant + 1);
    next.lease.session = first.lease.session;
    next.lease.grant = 99;
    next.is_tentative = true;
    next.session_cap = MicroUsd{10'000};
    EXPECT_EQ(Hold(next).funded_ms, 0);
    EXPECT_TRUE(absl::IsResourceExhausted(Hold(next).why));
    EXPECT_NE(Hold(next).why.message().find("this session"), std::string::npos);
    next.session_cap = MicroUsd{1'500'000};  // a dollar of it is charged or held
    EXPECT_EQ(Hold(next).funded_ms, 30'000);
    ASSERT_TRUE(ledger->EndHold(next.lease).ok());
    first.session_cap = std::nullopt;
    first.to_ms = 3 * kMinuteMs;
    EXPECT_EQ(Hold(first).funded_ms, 3 * kMinuteMs) << "as if nobody had asked";
    ASSERT_TRUE(ledger->EndHold(first.lease).ok());
    const auto kept = ledger->BudgetOf(BudgetScope::kSession, first.lease.session.Hex());
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(kept->cap.has_value(), has_cap);
    if (has_cap) {
      EXPECT_EQ(kept->cap->value, 10'000'000);
    }
  }
  EXPECT_EQ(Account().held.value, 0);
  EXPECT_TRUE(ledger->Verify().ok());
}

TEST_F(LedgerHoldsTest, ACreditLimitIsTheAccountsOwn_OrTheGateways) {
  EXPECT_EQ(Hold(RequestFor(1), MicroUsd{100'000}).funded_ms, 6000);
  ASSERT_TRUE(ledger->SetCreditLimit(TenantId{1}, MicroUsd{600'000}).ok());
  EXPECT_EQ(Hold(RequestFor(1), MicroUsd{100'000}).funded_ms, 36'000);
  ASSERT_TRUE(ledger->SetCreditLimit(TenantId{1}, std::nullopt).ok());
  EXPECT_EQ(Hold(RequestFor(1), kNoCreditLimit).funded_ms, kMinuteMs);
}

TEST_F(LedgerHoldsTest, AmountsThatMakeNoSense_ChangeNothing) {
  EXPECT_TRUE(absl::IsInvalidArgument(ledger->Credit(TenantId{1}, {0}, "a", kNoon).status()));
  EXPECT_TRUE(
      absl::IsOutOfRange(ledger->Credit(TenantId{1}, MicroUsd{INT64_MAX}, "a", kNoon).status()));
  Credit(kDollar);
  EXPECT_TRUE(absl::IsAlreadyExists(ledger->Credit(TenantId{1}, {2}, "payment", kNoon).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ledger->SetCap(BudgetScope::kKey, "k", MicroUsd{0})));
  EXPECT_TRUE(absl::IsOutOfRange(ledger->SetCap(BudgetScope::kKey, "k", MicroUsd{INT64_MAX})));
  EXPECT_TRUE(absl::IsInvalidArgument(ledger->SetCap(BudgetScope::kAccount, "-1", kDollar)));
  EXPECT_TRUE(absl::IsInvalidArgument(ledger->SetCreditLimit(TenantId{1}, MicroUsd{-1})));
  HoldRequest huge = RequestFor(1, kLeaseMsMax);
  huge.prices_per_hour.assign(2, MicroUsd{kPricePerHourMaxMicroUsd});
  EXPECT_TRUE(absl::IsFailedPrecondition(ledger->Hold(huge).status()));
  HoldRequest others = RequestFor(2);
  ASSERT_TRUE(ledger->Hold(others).ok());
  others.tenant = TenantId{2};
  EXPECT_TRUE(absl::IsInvalidArgument(ledger->Hold(others).status()));
  EXPECT_EQ(ledger->Balance(TenantId{1})->value, kDollar.value);
}

TEST_F(LedgerHoldsTest, AGatewayThatStarts_EndsAllHolds) {
  ASSERT_EQ(Hold(RequestFor(1), kNoCreditLimit).funded_ms, kMinuteMs);
  ASSERT_EQ(Hold(RequestFor(2), kNoCreditLimit).funded_ms, kMinuteMs);
  EXPECT_EQ(*ledger->EndAllHolds(), 2);
  EXPECT_EQ(*ledger->EndAllHolds(), 0);
  EXPECT_EQ(Account().held.value, 0);
}

// Ten connections, as ten processes have, hold and use what one account has.
TEST_F(LedgerHoldsTest, ARaceOfManyPassesNoLimit) {
  constexpr int kThreads = 10, kLeases = 20;
  Credit({5 * kDollar.value + 123});
  std::atomic<int64_t> used{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto own = OpenLedger(dir.File("books.db"));
      for (int i = 0; i < kLeases; ++i) {
        const HoldRequest request = RequestFor(static_cast<uint64_t>(100 * t + i + 1), 20'000);
        const HoldAnswer answer = ValueOrDie(own->Hold(request, {}));
        if (answer.funded_ms == 0) continue;
        Charge charge = ChargeFor({request.lease, 0}, 0, 1, 1, kDollarAMinute);
        charge.to_ms = answer.funded_ms;
        charge.amount = ChargeAfter(kDollarAMinute, charge.to_ms);
        EXPECT_TRUE(own->Post({&charge, 1}, kNoon).ok());
        used += charge.amount.value;
        EXPECT_TRUE(own->EndHold(request.lease).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const int64_t left = ledger->Balance(TenantId{1})->value;
  EXPECT_GE(left, 0);
  EXPECT_LT(left, 17'000);  // less than a second's price
  EXPECT_EQ(used + left, 5 * kDollar.value + 123);
}

// What the ledger refuses of one account leaves what is posted of the others.
TEST_F(LedgerHoldsTest, PostEach_RefusesByAccount) {
  ASSERT_TRUE(Hold(RequestFor(1), kNoCreditLimit).why.ok());
  ASSERT_TRUE(Hold(RequestFor(2, kMinuteMs, 2), kNoCreditLimit).why.ok());
  ASSERT_TRUE(Hold(RequestFor(3, kMinuteMs, 3), kNoCreditLimit).why.ok());
  const Charge charges[] = {ChargeFor(DeviceOf(1), 0, 5, 1, kDollarAMinute),
                            ChargeFor(DeviceOf(2), 0, 5, 2, kDollarAMinute),
                            ChargeFor(DeviceOf(3), 0, 5, 3, kDollarAMinute),
                            ChargeFor(DeviceOf(2), 6, 9, 2, kDollarAMinute)};  // a gap
  const auto accounts = ledger->PostEach(charges, kNoon);
  ASSERT_TRUE(accounts.ok()) << accounts.status();
  ASSERT_EQ(accounts->size(), 3u);
  for (const AccountPosting& account : *accounts)
    EXPECT_EQ(account.status.ok(), account.tenant.value != 2) << account.status;
  EXPECT_EQ(ledger->UsageOf(TenantId{1})->device_ms, 5000);
  EXPECT_EQ(ledger->UsageOf(TenantId{2})->device_ms, 0);
  EXPECT_EQ(ledger->UsageOf(TenantId{3})->device_ms, 5000);
  EXPECT_EQ(*ledger->LastEntry(), 2);
  EXPECT_TRUE(ledger->PostEach(charges, kNoon).ok());  // again: the same
  EXPECT_EQ(*ledger->LastEntry(), 2);
}

// A thousand leases of 900 ms: all of it is charged.
TEST_F(LedgerHoldsTest, ShortLeasesAreCharged) {
  Meter meter;
  int64_t amount = 0;
  for (uint64_t i = 1; i <= 50; ++i) {
    const MonoTime begin{static_cast<int64_t>(i) * kSecond};
    ASSERT_TRUE(Hold(RequestFor(i), kNoCreditLimit).why.ok());
    ASSERT_TRUE(meter.Grant({DeviceOf(i), TenantId{1}, kDollarAMinute, kNoon}, begin).ok());
    const auto charges = *meter.Release(DeviceOf(i), {begin.ns + 900'000'000});
    ASSERT_TRUE(ledger->Post(charges, kNoon).ok());
    ASSERT_TRUE(ledger->EndHold(DeviceOf(i).lease).ok());
    amount += charges.front().amount.value;
  }
  EXPECT_EQ(ledger->UsageOfAll()->device_ms, 50 * 900);
  EXPECT_EQ(ledger->UsageOfAll()->amount.value, amount);
  EXPECT_EQ(amount, 50 * 15'000);
}

}  // namespace
}  // namespace outboard::gateway::test
