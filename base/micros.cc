#include "base/micros.h"

#include <algorithm>

#include "absl/status/status.h"

namespace outboard {

absl::StatusOr<int64_t> ParseMicros(std::string_view text) {
  constexpr size_t kDecimals = 6;
  constexpr size_t kDigitsMax = 18;  // of millionths: below 2^63
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view part =
      point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (whole.empty() || part.size() > kDecimals ||
      (point != std::string_view::npos && part.empty()) ||
      !std::all_of(whole.begin(), whole.end(), is_digit) ||
      !std::all_of(part.begin(), part.end(), is_digit))
    return absl::InvalidArgumentError(
        "an amount is a number such as 2 or 0.50, with at most six decimals");
  const size_t leading = std::min(whole.find_first_not_of('0'), whole.size());
  if (whole.size() - leading > kDigitsMax - kDecimals + 1)
    return absl::OutOfRangeError("the amount is too large");
  int64_t value = 0;  // below 10^19 / 10 at each step
  for (const char c : whole.substr(leading)) value = value * 10 + (c - '0');
  constexpr int64_t kMillion = 1'000'000;
  if (value > INT64_MAX / kMillion - 1) return absl::OutOfRangeError("the amount is too large");
  int64_t micros = 0;
  for (size_t i = 0; i < kDecimals; ++i)
    micros = micros * 10 + (i < part.size() ? part[i] - '0' : 0);
  return value * kMillion + micros;
}

}  // namespace outboard
