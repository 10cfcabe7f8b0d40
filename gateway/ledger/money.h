// Money is an integer number of micro-USD. An amount that does not fit is an error (OUT_OF_RANGE),
// never a wrapped number.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "gateway/ledger/limits.h"

namespace outboard::gateway {

struct MicroUsd {
  int64_t value = 0;
  auto operator<=>(const MicroUsd&) const = default;
  // Never overflows for amounts that pass CheckAmount; module boundaries reject all others.
  MicroUsd operator-() const { return MicroUsd{-value}; }
};

// 0.50 USD an hour for each device. This is its only definition; the gateway's flag overrides it.
inline constexpr MicroUsd kDefaultPricePerHour{500'000};

// OUT_OF_RANGE beyond +-kAmountMaxMicroUsd.
absl::Status CheckAmount(MicroUsd amount);
// OUT_OF_RANGE outside 0 .. kPricePerHourMaxMicroUsd.
absl::Status CheckPrice(MicroUsd price_per_hour);

// The checked sum. OUT_OF_RANGE as CheckAmount, for either term or the sum.
absl::StatusOr<MicroUsd> Add(MicroUsd a, MicroUsd b);

// Returns the cost of one device after `ms` milliseconds of a lease: floor(price_per_hour * ms /
// 3,600,000). A range of milliseconds costs the difference of two of these, so rounding never
// drifts, however the ranges are cut. Requires a price that passes CheckPrice and 0 <= ms <=
// kLeaseMsMax; checked (OB_CHECK).
MicroUsd ChargeAfter(MicroUsd price_per_hour, int64_t ms);

// Reads "2", "0.50" or "1.234567": US dollars with at most six decimals, without a sign. For
// amounts that people type. INVALID_ARGUMENT: not such a number. OUT_OF_RANGE: as CheckAmount.
absl::StatusOr<MicroUsd> ParseUsd(std::string_view text);

// Returns "$1.234567" or "-$0.000139": all six digits, because people compare bills by eye.
std::string ToString(MicroUsd amount);

}  // namespace outboard::gateway
