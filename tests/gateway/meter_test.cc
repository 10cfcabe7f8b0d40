// Money and meter. MT1 to MT4 are the invariants of meter.cc.
#include "gateway/ledger/meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

constexpr MonoTime At(int64_t ms) { return MonoTime{ms * 1'000'000}; }

GrantRequest RequestFor(const LeasedDevice& device, MicroUsd price = kDefaultPricePerHour) {
  return {.device = device, .tenant = TenantId{1}, .price_per_hour = price, .granted_at = kNoon};
}

TEST(Money, ChargeIsTheFloorOfTheDesign) {
  struct {
    int64_t price, ms, amount;
  } const cases[] = {
      {500'000, 0, 0},
      {500'000, 7, 0},
      {500'000, 8, 1},
      {500'000, 900, 125},
      {500'000, 1000, 138},
      {500'000, 2000, 277},
      {500'000, 3'599'000, 499'861},
      {500'000, 3'599'999, 499'999},
      {500'000, 3'600'000, 500'000},
      {1, 3'599'999, 0},
      {1, 3'600'000, 1},
      {0, 1'000'000, 0},
      {3600, 12'345'000, 12'345},
      {7'199, 1000, 1},
      {kPricePerHourMaxMicroUsd, kLeaseMsMax, 596'523'235'555'555'555},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ChargeAfter(MicroUsd{c.price}, c.ms).value, c.amount) << c.price << " " << c.ms;
  }
}

TEST(Money, SumsAreChecked) {
  EXPECT_EQ(Add(MicroUsd{2}, MicroUsd{-5})->value, -3);
  EXPECT_TRUE(absl::IsOutOfRange(Add(MicroUsd{kAmountMaxMicroUsd}, MicroUsd{1}).status()));
  EXPECT_TRUE(absl::IsOutOfRange(Add(MicroUsd{INT64_MIN}, MicroUsd{INT64_MIN}).status()));
  EXPECT_TRUE(absl::IsOutOfRange(CheckPrice(MicroUsd{-1})));
  EXPECT_TRUE(absl::IsOutOfRange(CheckPrice(MicroUsd{kPricePerHourMaxMicroUsd + 1})));
}

TEST(Money, PrintsAllDigits) {
  EXPECT_EQ(ToString(MicroUsd{1'234'567}), "$1.234567");
  EXPECT_EQ(ToString(MicroUsd{-139}), "-$0.000139");
  EXPECT_EQ(ToString(MicroUsd{INT64_MIN}), "-$9223372036854.775808");
}

TEST(Money, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(ParseUsd("2")->value, 2'000'000);
  EXPECT_EQ(ParseUsd("0.50")->value, 500'000);
  EXPECT_EQ(ParseUsd("000.000001")->value, 1);
  EXPECT_EQ(ParseUsd("1000000000000")->value, kAmountMaxMicroUsd);
  for (const char* text : {"", ".", ".5", "1.", "-1", "+1", "1e3", "1,5", "0.0000001", " 1", "$1"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseUsd(text).status())) << text;
  for (const char* text : {"1000000000000.000001", "9223372036854775808", "99999999999999999999"})
    EXPECT_TRUE(absl::IsOutOfRange(ParseUsd(text).status())) << text;
}

TEST(SessionIdTest, TwoSpellingsOfOneName) {
  const SessionId id{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(id.Hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(SessionId::FromHex(id.Hex()), id);
  EXPECT_EQ(SessionId::FromBytes(id.Bytes()), id);
  EXPECT_FALSE(SessionId::FromHex("0123456789ABCDEFfedcba9876543210").has_value());
  EXPECT_FALSE(SessionId::FromHex("01").has_value());
  EXPECT_FALSE(SessionId::FromBytes("short").has_value());
}

// What is stored is here: nobody has to say that it lives. What is parked is with a worker.
TEST(Meter, StoredStateNeedsNoSignOfLife) {
  for (const auto& [use, counted_ms] :
       {std::pair(UseState::kStored, 100'000), std::pair(UseState::kParked, 0)}) {
    Meter meter({.unheard_max_ns = 5 * kSecond});
    GrantRequest request = RequestFor(DeviceOf(1));
    request.use = use;
    ASSERT_TRUE(meter.Grant(request, At(0)).ok());
    const auto charges = meter.Release(DeviceOf(1), At(100'000));
    ASSERT_TRUE(charges.ok());
    EXPECT_EQ(charges->size(), counted_ms == 0 ? 0u : 1u);
    if (charges->empty()) continue;
    EXPECT_EQ(charges->front().to_ms, counted_ms);
    EXPECT_EQ(charges->front().use, use);
  }
}

// Kept for days, it is one entry a minute and not one each five seconds.
TEST(Meter, KeptStateIsChargedByTheMinute) {
  for (const auto& [use, charges] :
       {std::pair(UseState::kRun, 12u), std::pair(UseState::kParked, 1u)}) {
    Meter meter;
    GrantRequest request = RequestFor(DeviceOf(1));
    request.use = use;
    ASSERT_TRUE(meter.Grant(request, At(0)).ok());
    size_t posted = 0;
    for (int64_t ms = 1000; ms <= 60'000; ms += 1000)
      posted += meter.Confirm(DeviceOf(1), At(ms))->size();
    EXPECT_EQ(posted, charges);
  }
}

TEST(Meter, ALeaseUnderASecondIsCharged) {
  Meter meter;
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  const auto charges = *meter.Release(device, MonoTime{900'999'999});
  ASSERT_EQ(charges.size(), 1u);
  EXPECT_EQ(charges[0].to_ms, 900);
  EXPECT_EQ(charges[0].amount.value, 125);
}

TEST(Meter, FundsEndTheCount) {
  Meter meter({.ms_per_charge = 1});
  const LeasedDevice device = DeviceOf(1);
  GrantRequest request = RequestFor(device);
  request.funded_ms = 1000;
  ASSERT_TRUE(meter.Grant(request, At(0)).ok());
  EXPECT_EQ(meter.FundsLeftNs(device, At(400)), 600'000'000);
  EXPECT_EQ(meter.Confirm(device, At(1500))->at(0), ChargeFor(device, 0, 1));
  EXPECT_EQ(meter.FundsLeftNs(device, At(1700)), -200'000'000);
  meter.Fund(device, 2000);
  meter.Fund(device, 1500);  // never goes back
  EXPECT_EQ(meter.Release(device, At(9000))->at(0), ChargeFor(device, 1, 2));
  EXPECT_EQ(meter.FundsLeftNs(device, At(9000)), 0);
}

TEST(Meter, ChargesWhatHasGathered) {
  Meter meter({.ms_per_charge = 1000});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(500)).ok());
  EXPECT_TRUE(meter.Confirm(device, At(1499))->empty());
  const auto first = *meter.Confirm(device, At(1500));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0], ChargeFor(device, 0, 1));
  EXPECT_TRUE(meter.Confirm(device, At(1500))->empty());
  const auto rest = meter.Release(device, At(3500));  // 3 s since the grant
  ASSERT_TRUE(rest.ok());
  ASSERT_EQ(rest->size(), 1u);
  EXPECT_EQ(rest->at(0), ChargeFor(device, 1, 3));
  EXPECT_EQ(meter.metered_count(), 0u);
}

TEST(Meter, GathersSecondsUntilThereAreEnough) {
  Meter meter({.ms_per_charge = 5000});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  EXPECT_TRUE(meter.Confirm(device, At(4900))->empty());
  EXPECT_EQ(meter.Read(device).ms, 4900);
  EXPECT_EQ(meter.Confirm(device, At(5000))->at(0), ChargeFor(device, 0, 5));
  EXPECT_EQ(meter.Release(device, At(7000))->at(0), ChargeFor(device, 5, 7));
}

TEST(Meter, PausesAreNotChargedAndMayOverlap) {
  Meter meter({.ms_per_charge = 1000});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  EXPECT_EQ(meter.Pause(device, PauseReason::kReplay, At(2000))->at(0), ChargeFor(device, 0, 2));
  EXPECT_TRUE(meter.Pause(device, PauseReason::kUnwritten, At(9000))->empty());
  EXPECT_TRUE(meter.Resume(device, PauseReason::kReplay, At(20'000))->empty());
  EXPECT_TRUE(meter.Resume(device, PauseReason::kReplay, At(21'000))->empty());
  EXPECT_TRUE(meter.Resume(device, PauseReason::kUnwritten, At(30'000))->empty());
  EXPECT_EQ(meter.Release(device, At(31'000))->at(0), ChargeFor(device, 2, 3));
}

TEST(Meter, TimeWithoutNewsOfALostDeviceIsNotCharged) {
  Meter meter({.ms_per_charge = 10000});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  ASSERT_TRUE(meter.Confirm(device, At(3000)).ok());
  const auto charges = meter.Lose(device);  // whenever that is noticed
  ASSERT_TRUE(charges.ok());
  ASSERT_EQ(charges->size(), 1u);
  EXPECT_EQ(charges->at(0), ChargeFor(device, 0, 3));
}

TEST(Meter, ALongSilenceIsNotVouchedFor) {
  Meter meter({.ms_per_charge = 1000, .unheard_max_ns = 5 * kSecond});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  EXPECT_EQ(meter.Confirm(device, At(5000))->at(0), ChargeFor(device, 0, 5));
  EXPECT_TRUE(meter.Confirm(device, At(10'001))->empty());
  EXPECT_EQ(meter.Confirm(device, At(11'001))->at(0), ChargeFor(device, 5, 6));
}

TEST(Meter, EarlierTimesAndFarEpochsAreHarmless) {
  Meter meter({.ms_per_charge = 1000});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), MonoTime{INT64_MIN}).ok());
  EXPECT_EQ(meter.Confirm(device, MonoTime{INT64_MAX})->at(0).to_ms, kLeaseMsMax);
  EXPECT_TRUE(meter.Confirm(device, MonoTime{0})->empty());
  EXPECT_TRUE(meter.Release(device, MonoTime{INT64_MAX})->empty());
}

TEST(Meter, Errors) {
  Meter meter;
  const LeasedDevice device = DeviceOf(1);
  EXPECT_TRUE(absl::IsNotFound(meter.Confirm(device, At(0)).status()));
  EXPECT_TRUE(absl::IsNotFound(meter.Release(device, At(0)).status()));
  EXPECT_TRUE(absl::IsNotFound(meter.Lose(device).status()));
  EXPECT_TRUE(absl::IsNotFound(meter.Pause(device, PauseReason::kReplay, At(0)).status()));
  EXPECT_TRUE(absl::IsOutOfRange(meter.Grant(RequestFor(device, MicroUsd{-1}), At(0))));
  GrantRequest nobody = RequestFor(device);
  nobody.tenant = {};
  EXPECT_TRUE(absl::IsOutOfRange(meter.Grant(nobody, At(0))));
  GrantRequest overdrawn = RequestFor(device);
  overdrawn.funded_ms = -1;
  EXPECT_TRUE(absl::IsOutOfRange(meter.Grant(overdrawn, At(0))));
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(meter.Grant(RequestFor(device), At(0))));
  ASSERT_TRUE(meter.Release(device, At(1)).ok());
  EXPECT_TRUE(absl::IsNotFound(meter.Release(device, At(2)).status()));
}

// The meter against a model that knows nothing of it: each millisecond of each device is either
// usable or not, and a charge may count it once it is confirmed.
TEST(MeterProperty, BillsTheUnionOfUsableTimeOnce) {
  Random random;
  struct Model {
    MicroUsd price;
    int64_t usable_ms = 0, confirmed_ms = 0, charged_ms = 0, charged_micro_usd = 0, funded_ms = 0;
    unsigned pauses = 0;
    void Confirm(int64_t now_ms) {
      for (; confirmed_ms < now_ms; ++confirmed_ms)
        usable_ms += pauses == 0 && usable_ms < funded_ms ? 1 : 0;
    }
  };
  for (int round = 0; round < 400; ++round) {
    Meter meter({.ms_per_charge = random.Int(0, 7000)});
    std::map<LeasedDevice, Model> models;
    uint64_t grants = 0;
    int64_t now_ms = random.Int(0, 1'000'000);

    // MT2: each charge continues the one before, at the closed form.
    const auto take = [&](const std::vector<Charge>& charges) {
      for (const Charge& charge : charges) {
        Model& model = models.at(charge.device);
        EXPECT_EQ(charge.from_ms, model.charged_ms);
        EXPECT_GT(charge.to_ms, charge.from_ms);
        EXPECT_LE(charge.to_ms, model.usable_ms);  // MT3, MT1
        model.charged_ms = charge.to_ms;
        model.charged_micro_usd += charge.amount.value;
        EXPECT_EQ(model.charged_micro_usd, ChargeAfter(model.price, model.charged_ms).value);
      }
    };
    const auto end = [&](const LeasedDevice& device) {
      EXPECT_EQ(models.at(device).charged_ms, models.at(device).usable_ms);  // MT3
      models.erase(device);
    };

    for (int step = 0; step < 300; ++step) {
      now_ms += random.OneIn(10) ? random.Int(0, 20'000) : random.Int(0, 900);
      const int64_t told_ms = random.OneIn(20) ? now_ms - random.Int(0, 5'000) : now_ms;  // MT4
      if (models.empty() || random.OneIn(15)) {
        const LeasedDevice device = DeviceOf(static_cast<uint64_t>(random.Int(1, 3)), ++grants,
                                             static_cast<uint32_t>(random.Int(0, 3)));
        const MicroUsd price{random.OneIn(3) ? random.Int(0, 10'000'000) : 500'000};
        GrantRequest request = RequestFor(device, price);
        if (random.OneIn(2)) request.funded_ms = random.Int(0, 60'000);
        ASSERT_TRUE(meter.Grant(request, At(now_ms)).ok());
        models[device] =
            Model{.price = price, .confirmed_ms = now_ms, .funded_ms = request.funded_ms};
        continue;
      }
      const LeasedDevice device =
          std::next(models.begin(), random.Int(0, std::ssize(models) - 1))->first;
      Model& model = models.at(device);
      const unsigned bit = 1u << random.Int(0, 1);
      const auto why = static_cast<PauseReason>(bit);
      switch (random.Int(0, 8)) {
        case 8: {
          const int64_t funded_ms = random.Int(0, 90'000);
          meter.Fund(device, funded_ms);
          model.funded_ms = std::max(model.funded_ms, funded_ms);
          break;
        }
        case 0:
          model.Confirm(told_ms);
          take(*meter.Pause(device, why, At(told_ms)));
          model.pauses |= bit;
          break;
        case 1:
        case 2:
          model.Confirm(told_ms);
          take(*meter.Resume(device, why, At(told_ms)));
          model.pauses &= ~bit;
          break;
        case 3:
          if (!random.OneIn(3)) break;
          model.Confirm(told_ms);
          take(*meter.Release(device, At(told_ms)));
          end(device);
          break;
        case 4:
          if (!random.OneIn(6)) break;
          take(*meter.Lose(device));
          end(device);
          break;
        case 5:
          for (auto& [each, its_model] : models) {
            its_model.Confirm(told_ms);
            take(*meter.Confirm(each, At(told_ms)));
          }
          break;
        default:
          model.Confirm(told_ms);
          take(*meter.Confirm(device, At(told_ms)));
          EXPECT_EQ(meter.Read(device).ms, model.usable_ms);
      }
      if (HasFailure()) return;
    }
    EXPECT_EQ(meter.metered_count(), models.size());
  }
}

}  // namespace
}  // namespace outboard::gateway::test
