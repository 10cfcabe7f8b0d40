#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"

namespace outboard::cli {
namespace {

constexpr size_t kRowsMax = 30;

struct Total {
  uint64_t count = 0;
  double us = 0, most_us = 0;
};

const char* ProcessName(int process) {
  return process == 1 ? "client" : process == 2 ? "gateway" : "worker";
}

absl::StatusOr<std::string> Summary(const nlohmann::json& trace) {
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    return absl::InvalidArgumentError("not a trace: it is not JSON with traceEvents");
  std::map<std::pair<int, std::string>, Total> totals;
  double first_us = -1, last_us = 0, blocked_us = 0, kernels_us = 0;
  uint64_t runs = 0, waits = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (!event.is_object() || event.value("ph", "") != "X") continue;
    const int process = event.value("pid", 0);
    const std::string name = event.value("name", "");
    const double begin_us = event.value("ts", 0.0), us = event.value("dur", 0.0);
    Total& total = totals[{process, name}];
    ++total.count;
    total.us += us;
    total.most_us = std::max(total.most_us, us);
    last_us = std::max(last_us, begin_us + us);
    if (process == 1 && name == "run") {
      ++runs;
      if (first_us < 0 || begin_us < first_us) first_us = begin_us;
    }
    if (process == 1 && name == "blocked") {
      ++waits;
      blocked_us += us;
    }
    if (process == 3 && name.starts_with("kernel ")) kernels_us += us;
  }
  if (runs == 0) return absl::InvalidArgumentError("not a trace of a session: it contains no Run");
  const double whole_us = std::max(last_us - first_us, 1e-3);
  std::string out = absl::StrFormat(
      "%d Runs in %.1f ms. The program was blocked %d times, %.1f ms (%.0f %%); kernels ran for "
      "%.1f ms (%.0f %%).\n",
      runs, whole_us / 1e3, waits, blocked_us / 1e3, 100 * blocked_us / whole_us, kernels_us / 1e3,
      100 * kernels_us / whole_us);
  if (trace.contains("otherData") && trace["otherData"].is_object())
    if (const auto dropped = trace["otherData"].value("spans_dropped", uint64_t{0}); dropped > 0)
      absl::StrAppend(&out, dropped, " spans found no room and are not counted here.\n");

  std::vector<std::pair<std::pair<int, std::string>, Total>> rows(totals.begin(), totals.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  absl::StrAppendFormat(&out, "\n%-8s %-40s %8s %11s %11s %11s %6s\n", "where", "span", "count",
                        "total ms", "mean us", "most us", "share");
  for (size_t i = 0; i < std::min(rows.size(), kRowsMax); ++i) {
    const auto& [of, total] = rows[i];
    absl::StrAppendFormat(&out, "%-8s %-40.40s %8d %11.2f %11.1f %11.1f %4.0f %%\n",
                          ProcessName(of.first), of.second, total.count, total.us / 1e3,
                          total.us / static_cast<double>(total.count), total.most_us,
                          100 * total.us / whole_us);
  }
  if (rows.size() > kRowsMax)
    absl::StrAppend(&out, "and ", rows.size() - kRowsMax, " more, that took less\n");
  return out;
}

}  // namespace

absl::StatusOr<std::string> TraceSummary(std::string_view json) {
  try {
    return Summary(nlohmann::json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("no trace: ", error.what()));
  }
}

int RunTrace(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  const absl::StatusOr<std::string> summary =
      in.good() ? TraceSummary(text.str()) : absl::NotFoundError("it cannot be read");
  if (!summary.ok()) {
    std::fprintf(stderr, "outboard: %s: %s\n", file.c_str(),
                 std::string(summary.status().message()).c_str());
    return 1;
  }
  std::fputs(summary->c_str(), stdout);
  return 0;
}

}  // namespace outboard::cli
