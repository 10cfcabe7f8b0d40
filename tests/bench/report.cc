#include "tests/bench/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace outboard::bench {

bool report_json = false;

namespace {

// What others have said, as a part of a JSON string.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(static_cast<unsigned char>(c) < ' ' ? ' ' : c);
  }
  return out;
}

}  // namespace

void Report(const std::string& figure, double value, const std::string& unit,
            const std::string& peer, const std::string& note) {
  if (!std::isfinite(value))  // JSON has no such numbers
    return ReportSkipped(figure, absl::StrFormat("its value is %g", value));
  if (report_json)
    absl::PrintF(
        "{\"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"peer\": \"%s\", \"note\": "
        "\"%s\"}\n",
        figure, value, unit, Escaped(peer), Escaped(note));
  else
    absl::PrintF("%-32s %12.6g %-10s %s%s\n", figure, value, unit,
                 peer.empty() ? "" : "(" + peer + ") ", note);
  std::fflush(stdout);
}

void ReportSkipped(const std::string& figure, const std::string& why) {
  if (report_json)
    absl::PrintF("{\"figure\": \"%s\", \"skipped\": \"%s\"}\n", figure, Escaped(why));
  else
    absl::PrintF("%-32s %12s %s\n", figure, "skipped", why);
  std::fflush(stdout);
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(q * static_cast<double>(values.size()) - 1e-9);
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace outboard::bench
