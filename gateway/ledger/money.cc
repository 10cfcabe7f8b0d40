#include "gateway/ledger/money.h"

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/micros.h"

namespace outboard::gateway {

absl::Status CheckAmount(MicroUsd amount) {
  if (amount.value > kAmountMaxMicroUsd || amount.value < -kAmountMaxMicroUsd) {
    return absl::OutOfRangeError(absl::StrFormat(
        "amount of %d micro-USD is beyond the limit of +-%d", amount.value, kAmountMaxMicroUsd));
  }
  return absl::OkStatus();
}

absl::Status CheckPrice(MicroUsd price_per_hour) {
  if (price_per_hour.value < 0 || price_per_hour.value > kPricePerHourMaxMicroUsd) {
    return absl::OutOfRangeError(absl::StrFormat("price of %d micro-USD an hour is outside 0 .. %d",
                                                 price_per_hour.value, kPricePerHourMaxMicroUsd));
  }
  return absl::OkStatus();
}

absl::StatusOr<MicroUsd> Add(MicroUsd a, MicroUsd b) {
  OB_RETURN_IF_ERROR(CheckAmount(a));
  OB_RETURN_IF_ERROR(CheckAmount(b));
  const MicroUsd sum{a.value + b.value};
  OB_RETURN_IF_ERROR(CheckAmount(sum));
  return sum;
}

MicroUsd ChargeAfter(MicroUsd price_per_hour, int64_t ms) {
  constexpr int64_t kMsPerHour = 3'600'000;
  OB_CHECK(CheckPrice(price_per_hour).ok());
  OB_CHECK(ms >= 0 && ms <= kLeaseMsMax);
  return MicroUsd{static_cast<int64_t>(absl::int128(price_per_hour.value) * ms / kMsPerHour)};
}

absl::StatusOr<MicroUsd> ParseUsd(std::string_view text) {
  OB_ASSIGN_OR_RETURN(const int64_t micros, ParseMicros(text));
  OB_RETURN_IF_ERROR(CheckAmount(MicroUsd{micros}));
  return MicroUsd{micros};
}

std::string ToString(MicroUsd amount) {
  // Unsigned magnitude, because the smallest int64 has no positive counterpart.
  const uint64_t magnitude = amount.value < 0 ? 0 - static_cast<uint64_t>(amount.value)
                                              : static_cast<uint64_t>(amount.value);
  return absl::StrFormat("%s$%d.%06d", amount.value < 0 ? "-" : "", magnitude / 1'000'000,
                         magnitude % 1'000'000);
}

}  // namespace outboard::gateway
