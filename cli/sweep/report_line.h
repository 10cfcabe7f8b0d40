// What a trial says of itself: words like `loss=0.31` in a line that it prints, or the lines of
// outboard.report (client/report/report.h), which have the same form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::cli {

struct ReportLine {
  std::optional<int64_t> step;
  std::vector<std::pair<std::string, double>> values;  // infinities and NaN are values
  std::optional<int64_t> cost_micro_usd;
};

// Reads the words NAME=NUMBER of a line; others, and words with more behind the number than one of
// ",;)", count for nothing. Reads at most kReportLineMax bytes.
inline constexpr size_t kReportLineMax = 4096;
ReportLine ReadReportLine(std::string_view line);

}  // namespace outboard::cli
