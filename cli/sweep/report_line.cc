#include "cli/sweep/report_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"

namespace outboard::cli {
namespace {

constexpr size_t kNameMax = 64, kValuesMax = 32;

bool IsMetricName(std::string_view name) {
  if (name.empty() || name.size() > kNameMax || absl::ascii_isdigit(name[0])) return false;
  for (const char c : name)
    if (!absl::ascii_isalnum(c) && c != '_' && c != '.' && c != '/' && c != '-') return false;
  return true;
}

}  // namespace

ReportLine ReadReportLine(std::string_view line) {
  ReportLine report;
  line = line.substr(0, kReportLineMax);
  for (size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
    const size_t end_of_word = std::min(line.find_first_of(" \t\r", at), line.size());
    std::string_view word = line.substr(at, end_of_word - at);
    at = end_of_word;
    while (word.starts_with('(') || word.starts_with('[')) word.remove_prefix(1);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = word.substr(0, equals);
    std::string_view number = word.substr(equals + 1);
    if (number.starts_with('+')) number.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const std::string_view rest(end, number.data() + number.size() - end);
    if (!IsMetricName(name) || error != std::errc() ||
        rest.find_first_not_of(",;)]") != std::string_view::npos)
      continue;
    const bool whole = std::trunc(value) == value && value >= 0 && value < 0x1p62;
    if (name == "step") {
      if (whole) report.step = static_cast<int64_t>(value);
    } else if (name == "cost_micro_usd") {
      if (whole) report.cost_micro_usd = static_cast<int64_t>(value);
    } else if (report.values.size() < kValuesMax) {
      report.values.emplace_back(name, value);
    }
  }
  return report;
}

}  // namespace outboard::cli
