// Money and meter. M1 to M4 are the invariants of meter.cc.
#include "gateway/ledger/meter.h"

#include <gtest/gtest.h>

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
    int64_t price, seconds, amount;
  } const cases[] = {
      {500'000, 0, 0},
      {500'000, 1, 138},
      {500'000, 2, 277},
      {500'000, 3599, 499'861},
      {500'000, 3600, 500'000},
      {1, 3599, 0},
      {1, 3600, 1},
      {0, 1'000'000, 0},
      {3600, 12'345, 12'345},
      {7'199, 1, 1},
      {kPricePerHourMaxMicroUsd, kLeaseSecondsMax, 596'523'235'555'555'555},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ChargeAfter(MicroUsd{c.price}, c.seconds).value, c.amount)
        << c.price << " " << c.seconds;
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

TEST(SessionIdTest, TwoSpellingsOfOneName) {
  const SessionId id{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(id.Hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(SessionId::FromHex(id.Hex()), id);
  EXPECT_EQ(SessionId::FromBytes(id.Bytes()), id);
  EXPECT_FALSE(SessionId::FromHex("0123456789ABCDEFfedcba9876543210").has_value());
  EXPECT_FALSE(SessionId::FromHex("01").has_value());
  EXPECT_FALSE(SessionId::FromBytes("short").has_value());
}

TEST(Meter, ChargesWholeSecondsAndDropsTheRest) {
  Meter meter({.seconds_per_charge = 1});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(500)).ok());
  EXPECT_TRUE(meter.Confirm(device, At(1499))->empty());
  const auto first = *meter.Confirm(device, At(1500));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0], ChargeFor(device, 0, 1));
  EXPECT_TRUE(meter.Confirm(device, At(1500))->empty());
  const auto rest = meter.Release(device, At(4499));  // 3.999 s since the grant
  ASSERT_TRUE(rest.ok());
  ASSERT_EQ(rest->size(), 1u);
  EXPECT_EQ(rest->at(0), ChargeFor(device, 1, 3));
  EXPECT_EQ(meter.metered_count(), 0u);
}

TEST(Meter, GathersSecondsUntilThereAreEnough) {
  Meter meter({.seconds_per_charge = 5});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  EXPECT_TRUE(meter.Confirm(device, At(4900))->empty());
  EXPECT_EQ(meter.Read(device).seconds, 4);
  EXPECT_EQ(meter.Confirm(device, At(5000))->at(0), ChargeFor(device, 0, 5));
  EXPECT_EQ(meter.Release(device, At(7000))->at(0), ChargeFor(device, 5, 7));
}

TEST(Meter, PausesAreNotChargedAndMayOverlap) {
  Meter meter({.seconds_per_charge = 1});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  EXPECT_EQ(meter.Pause(device, PauseReason::kBeam, At(2500))->at(0), ChargeFor(device, 0, 2));
  EXPECT_TRUE(meter.Pause(device, PauseReason::kQueueing, At(9000))->empty());
  EXPECT_TRUE(meter.Resume(device, PauseReason::kBeam, At(20'000))->empty());
  EXPECT_TRUE(meter.Resume(device, PauseReason::kBeam, At(21'000))->empty());
  EXPECT_TRUE(meter.Resume(device, PauseReason::kQueueing, At(30'000))->empty());
  EXPECT_EQ(meter.Release(device, At(30'600))->at(0), ChargeFor(device, 2, 3));  // 2.5 + 0.6 s
}

TEST(Meter, TimeWithoutNewsOfALostDeviceIsNotCharged) {
  Meter meter({.seconds_per_charge = 10});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  ASSERT_TRUE(meter.Confirm(device, At(3200)).ok());
  const auto charges = meter.Lose(device);  // whenever that is noticed
  ASSERT_TRUE(charges.ok());
  ASSERT_EQ(charges->size(), 1u);
  EXPECT_EQ(charges->at(0), ChargeFor(device, 0, 3));
}

TEST(Meter, ALongSilenceIsNotVouchedFor) {
  Meter meter({.seconds_per_charge = 1, .unheard_max_ns = 5 * kSecond});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), At(0)).ok());
  EXPECT_EQ(meter.Confirm(device, At(5000))->at(0), ChargeFor(device, 0, 5));
  EXPECT_TRUE(meter.Confirm(device, At(10'001))->empty());
  EXPECT_EQ(meter.Confirm(device, At(11'001))->at(0), ChargeFor(device, 5, 6));
}

TEST(Meter, EarlierTimesAndFarEpochsAreHarmless) {
  Meter meter({.seconds_per_charge = 1});
  const LeasedDevice device = DeviceOf(1);
  ASSERT_TRUE(meter.Grant(RequestFor(device), MonoTime{INT64_MIN}).ok());
  EXPECT_EQ(meter.Confirm(device, MonoTime{INT64_MAX})->at(0).to_s, kLeaseSecondsMax);
  EXPECT_TRUE(meter.Confirm(device, MonoTime{0})->empty());
  EXPECT_TRUE(meter.Release(device, MonoTime{INT64_MAX})->empty());
}

TEST(Meter, Errors) {
  Meter meter;
  const LeasedDevice device = DeviceOf(1);
  EXPECT_TRUE(absl::IsNotFound(meter.Confirm(device, At(0)).status()));
  EXPECT_TRUE(absl::IsNotFound(meter.Release(device, At(0)).status()));
  EXPECT_TRUE(absl::IsNotFound(meter.Lose(device).status()));
  EXPECT_TRUE(absl::IsNotFound(meter.Pause(device, PauseReason::kOther, At(0)).status()));
  EXPECT_TRUE(absl::IsOutOfRange(meter.Grant(RequestFor(device, MicroUsd{-1}), At(0))));
  GrantRequest nobody = RequestFor(device);
  nobody.tenant = {};
  EXPECT_TRUE(absl::IsOutOfRange(meter.Grant(nobody, At(0))));
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
    int64_t usable_ms = 0, confirmed_ms = 0, charged_s = 0, charged_micro_usd = 0;
    unsigned pauses = 0;
    void Confirm(int64_t now_ms) {
      for (; confirmed_ms < now_ms; ++confirmed_ms) usable_ms += pauses == 0 ? 1 : 0;
    }
  };
  for (int round = 0; round < 400; ++round) {
    Meter meter({.seconds_per_charge = random.Int(0, 7)});
    std::map<LeasedDevice, Model> models;
    uint64_t grants = 0;
    int64_t now_ms = random.Int(0, 1'000'000);

    // M2: each charge continues the one before, at the closed form.
    const auto take = [&](const std::vector<Charge>& charges) {
      for (const Charge& charge : charges) {
        Model& model = models.at(charge.device);
        EXPECT_EQ(charge.from_s, model.charged_s);
        EXPECT_GT(charge.to_s, charge.from_s);
        EXPECT_LE(charge.to_s, model.usable_ms / 1000);  // M3, M1
        model.charged_s = charge.to_s;
        model.charged_micro_usd += charge.amount.value;
        EXPECT_EQ(model.charged_micro_usd, ChargeAfter(model.price, model.charged_s).value);
      }
    };
    const auto end = [&](const LeasedDevice& device) {
      EXPECT_EQ(models.at(device).charged_s, models.at(device).usable_ms / 1000);  // M3
      models.erase(device);
    };

    for (int step = 0; step < 300; ++step) {
      now_ms += random.OneIn(10) ? random.Int(0, 20'000) : random.Int(0, 900);
      const int64_t told_ms = random.OneIn(20) ? now_ms - random.Int(0, 5'000) : now_ms;  // M4
      if (models.empty() || random.OneIn(15)) {
        const LeasedDevice device = DeviceOf(static_cast<uint64_t>(random.Int(1, 3)), ++grants,
                                             static_cast<uint32_t>(random.Int(0, 3)));
        const MicroUsd price{random.OneIn(3) ? random.Int(0, 10'000'000) : 500'000};
        ASSERT_TRUE(meter.Grant(RequestFor(device, price), At(now_ms)).ok());
        models[device] = Model{.price = price, .confirmed_ms = now_ms};
        continue;
      }
      const LeasedDevice device =
          std::next(models.begin(), random.Int(0, std::ssize(models) - 1))->first;
      Model& model = models.at(device);
      const unsigned bit = 1u << random.Int(0, 3);
      const auto why = static_cast<PauseReason>(bit);
      switch (random.Int(0, 7)) {
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
          EXPECT_EQ(meter.Read(device).seconds, model.usable_ms / 1000);
      }
      if (HasFailure()) return;
    }
    EXPECT_EQ(meter.metered_count(), models.size());
  }
}

}  // namespace
}  // namespace outboard::gateway::test
