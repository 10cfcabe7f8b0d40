#include "gateway/ledger/money.h"

#include <algorithm>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

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
  constexpr size_t kDecimals = 6;
  // More digits of dollars than any amount has, fewer than would overflow.
  constexpr size_t kDigitsMax = 12;
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        "an amount is a number of US dollars such as 2 or 0.50, with at most six decimals");
  };
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view part =
      point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  if (whole.empty() || part.size() > kDecimals ||
      (point != std::string_view::npos && part.empty()))
    return bad();
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::all_of(whole.begin(), whole.end(), is_digit) ||
      !std::all_of(part.begin(), part.end(), is_digit))
    return bad();
  const size_t leading = std::min(whole.find_first_not_of('0'), whole.size());
  if (whole.size() - leading > kDigitsMax + 1)
    return absl::OutOfRangeError(absl::StrFormat("an amount of more than %s is beyond what the "
                                                 "books can hold",
                                                 ToString(MicroUsd{kAmountMaxMicroUsd})));
  int64_t value = 0;
  for (const char c : whole.substr(leading)) value = value * 10 + (c - '0');
  for (size_t i = 0; i < kDecimals; ++i)
    value = value * 10 + (i < part.size() ? part[i] - '0' : 0);
  OB_RETURN_IF_ERROR(CheckAmount(MicroUsd{value}));
  return MicroUsd{value};
}

std::string ToString(MicroUsd amount) {
  // Unsigned magnitude, because the smallest int64 has no positive counterpart.
  const uint64_t magnitude = amount.value < 0 ? 0 - static_cast<uint64_t>(amount.value)
                                              : static_cast<uint64_t>(amount.value);
  return absl::StrFormat("%s$%d.%06d", amount.value < 0 ? "-" : "", magnitude / 1'000'000,
                         magnitude % 1'000'000);
}

}  // namespace outboard::gateway
