#include "cli/sweep/parameter.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace outboard::cli {
namespace {

constexpr int kPointsMax = 10'000;
constexpr double kWholeMax = 9e15;  // exact in a double

absl::Status Wrong(const std::string& text, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("-p ", text, ": ", what));
}

std::optional<double> NumberFrom(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number))
    return std::nullopt;
  return number;
}

bool IsName(std::string_view text) {
  return !text.empty() && (absl::ascii_isalpha(text[0]) || text[0] == '_') &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; });
}

std::vector<std::string> PartsOf(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos;) {
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.emplace_back(text);
  return parts;
}

bool IsWhole(std::string_view text) {
  return text.find_first_not_of("+-0123456789") == std::string_view::npos;
}

}  // namespace

absl::StatusOr<SweptParameter> SweptParameter::Parse(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    return Wrong(text, "no value; write NAME=VALUE,VALUE or NAME=LOW..HIGH");
  SweptParameter parameter;
  parameter.name_ = text.substr(0, equals);
  if (!IsName(parameter.name_))
    return Wrong(text, "a name has letters, digits, _ and -, and does not begin with a digit");
  const std::string value = text.substr(equals + 1);
  if (value.empty())
    return Wrong(text, "no value; write a list like 64,128 or a range like 1e-4..1e-2:log");
  const size_t dots = value.find("..");
  if (dots == std::string::npos) {
    parameter.choices_ = PartsOf(value, ',');
    if (std::ranges::count(parameter.choices_, "") > 0) return Wrong(text, "an empty value");
    for (size_t i = 0; i < parameter.choices_.size(); ++i)
      if (std::find(parameter.choices_.begin(), parameter.choices_.begin() + i,
                    parameter.choices_[i]) != parameter.choices_.begin() + i)
        return Wrong(text, absl::StrCat("\"", parameter.choices_[i], "\" is there twice"));
    return parameter;
  }
  const std::vector<std::string> parts = PartsOf(value.substr(dots + 2), ':');
  const std::string low = value.substr(0, dots), high = parts[0];
  const std::optional<double> from = NumberFrom(low), to = NumberFrom(high);
  if (!from.has_value()) return Wrong(text, absl::StrCat("\"", low, "\" is no number"));
  if (!to.has_value()) return Wrong(text, absl::StrCat("\"", high, "\" is no number"));
  if (!(*from < *to)) return Wrong(text, absl::StrCat(low, " is not below ", high));
  parameter.low_ = *from;
  parameter.high_ = *to;
  parameter.whole_ = IsWhole(low) && IsWhole(high);
  if (parameter.whole_ && std::max(std::abs(*from), std::abs(*to)) > kWholeMax)
    return Wrong(text, "whole numbers end at 9e15");
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::optional<double> points = NumberFrom(parts[i]);
    if (parts[i] == "log" && !parameter.log_) {
      if (!(*from > 0)) return Wrong(text, ":log needs a range above 0");
      parameter.log_ = true;
    } else if (points.has_value() && parameter.points_ == 0 && *points >= 2 &&
               *points <= kPointsMax && std::trunc(*points) == *points) {
      parameter.points_ = static_cast<int>(*points);
    } else {
      return Wrong(text, absl::StrCat("\"", parts[i],
                                      "\" is neither :log nor a number of points from 2 to 10000"));
    }
  }
  return parameter;
}

std::string SweptParameter::NumberAt(double u) const {
  double number = log_ ? std::exp(std::log(low_) + u * (std::log(high_) - std::log(low_)))
                       : low_ + u * (high_ - low_);
  number = std::clamp(number, low_, high_);
  if (whole_) return absl::StrCat(static_cast<int64_t>(std::llround(number)));
  return absl::StrCat(number);  // six digits: what people write, and enough for a parameter
}

std::vector<std::string> SweptParameter::GridValues() const {
  if (!is_range()) return choices_;
  std::vector<std::string> values;
  for (int i = 0; i < points_; ++i) {
    std::string value = NumberAt(static_cast<double>(i) / (points_ - 1));
    // More points than there are whole numbers.
    if (values.empty() || values.back() != value) values.push_back(std::move(value));
  }
  return values;
}

std::string SweptParameter::ValueAt(double u) const {
  if (!is_range()) {
    const size_t i = static_cast<size_t>(u * static_cast<double>(choices_.size()));
    return choices_[std::min(i, choices_.size() - 1)];
  }
  if (!whole_ || log_) return NumberAt(u);
  // Each whole number as likely as the others, the ends too.
  const double number = std::floor(low_ + u * (high_ - low_ + 1));
  return absl::StrCat(static_cast<int64_t>(std::min(number, high_)));
}

}  // namespace outboard::cli
