#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"

namespace outboard::cli {
namespace {

constexpr size_t kRowsMax = 30;

struct Span {
  int process = 0;
  std::string name;
  double begin_us = 0, us = 0;
  double end_us() const { return begin_us + us; }
};

// Of the spans of one name in one process.
struct Total {
  uint64_t count = 0;
  double us = 0, most_us = 0;
  double own_us = 0;  // without the spans inside
};
using Totals = std::map<std::pair<int, std::string>, Total>;

const char* ProcessName(int process) {
  return process == 1 ? "client" : process == 2 ? "gateway" : "worker";
}

std::vector<Span> SpansOf(const nlohmann::json& trace) {
  std::vector<Span> spans;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (!event.is_object() || event.value("ph", "") != "X") continue;
    spans.push_back({event.value("pid", 0), event.value("name", ""), event.value("ts", 0.0),
                     event.value("dur", 0.0)});
  }
  return spans;
}

// Gives each moment from `first_us` to `last_us` to the span of the process that began last among
// those which have not ended; "(nothing)" has the others. So the parts add up to the whole.
namespace {

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

}  // namespace

void AddOwnTimes(const std::vector<Span>& spans, int process, double first_us, double last_us,
                 Totals& totals) {
  struct Edge {
    double at_us;
    bool begins;
    size_t span;
  };
  std::vector<Edge> edges;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].process != process) continue;
    edges.push_back({spans[i].begin_us, true, i});
    edges.push_back({spans[i].end_us(), false, i});
  }
  // Ends before begins, so that spans which only touch do not hold each other.
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::pair(a.at_us, a.begins) < std::pair(b.at_us, b.begins);
  });
  std::set<std::pair<double, size_t>> open;
  double now_us = first_us;
  const auto advance = [&](double to_us) {
    const double until_us = std::clamp(to_us, now_us, last_us);
    const std::string name = open.empty() ? "(nothing)" : spans[open.rbegin()->second].name;
    totals[{process, name}].own_us += until_us - now_us;
    now_us = until_us;
  };
  for (const Edge& edge : edges) {
    advance(edge.at_us);
    const std::pair key(spans[edge.span].begin_us, edge.span);
    if (edge.begins)
      open.insert(key);
    else
      open.erase(key);
  }
  advance(last_us);
}

using Row = std::pair<std::pair<int, std::string>, Total>;

// Of each row its share in whole percents. Rounded down, those of a process would not add up to
// 100: what is missing goes to those that lost the most.
std::vector<int> SharesOf(const std::vector<Row>& rows, double whole_us) {
  std::vector<int> shares(rows.size());
  std::map<int, std::vector<size_t>> of_process;
  const auto percents = [&](size_t i) { return 100 * rows[i].second.own_us / whole_us; };
  for (size_t i = 0; i < rows.size(); ++i) {
    shares[i] = static_cast<int>(percents(i));
    of_process[rows[i].first.first].push_back(i);
  }
  for (auto& [process, mine] : of_process) {
    double sum = 0;
    int missing = 0;
    for (const size_t i : mine) {
      sum += percents(i);
      missing -= shares[i];
    }
    missing += static_cast<int>(std::lround(sum));
    std::stable_sort(mine.begin(), mine.end(), [&](size_t a, size_t b) {
      return percents(a) - shares[a] > percents(b) - shares[b];
    });
    for (const size_t i : mine)
      if (missing-- > 0) ++shares[i];
  }
  return shares;
}

std::string Table(const Totals& totals, double whole_us) {
  std::vector<Row> rows(totals.begin(), totals.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.own_us > b.second.own_us; });
  std::string out = absl::StrFormat("\n%-8s %-40s %8s %11s %11s %11s %6s\n", "where", "span",
                                    "count", "total ms", "mean us", "most us", "share");
  const std::vector<int> shares = SharesOf(rows, whole_us);
  int others = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [of, total] = rows[i];
    if (i >= kRowsMax) {
      others += shares[i];
      continue;
    }
    absl::StrAppendFormat(&out, "%-8s %-40.40s %8d %11.2f %11.1f %11.1f %4d %%\n",
                          ProcessName(of.first), of.second, total.count,
                          (total.count == 0 ? total.own_us : total.us) / 1e3,
                          total.us / static_cast<double>(std::max<uint64_t>(1, total.count)),
                          total.most_us, shares[i]);
  }
  if (rows.size() > kRowsMax) {
    absl::StrAppendFormat(&out, "and %d more, of together %d %%\n", rows.size() - kRowsMax, others);
  }
  absl::StrAppend(
      &out,
      "\nA share is of the time from the first Run to the end, without the spans inside "
      "a span;\nthe shares of each of client, gateway and worker add up to 100 %.\n");
  return out;
}

absl::StatusOr<std::string> Summary(const nlohmann::json& trace) {
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    return absl::InvalidArgumentError("not a trace: it is not JSON with traceEvents");
  const std::vector<Span> spans = SpansOf(trace);
  Totals totals;
  std::set<int> processes;
  double first_us = -1, last_us = 0, blocked_us = 0, kernels_us = 0;
  uint64_t runs = 0, waits = 0;
  for (const Span& span : spans) {
    processes.insert(span.process);
    Total& total = totals[{span.process, span.name}];
    ++total.count;
    total.us += span.us;
    total.most_us = std::max(total.most_us, span.us);
    last_us = std::max(last_us, span.end_us());
    if (span.process == 1 && span.name == "run") {
      ++runs;
      if (first_us < 0 || span.begin_us < first_us) first_us = span.begin_us;
    }
    if (span.process == 1 && span.name == "blocked") {
      ++waits;
      blocked_us += span.us;
    }
    if (span.process == 3 && span.name.starts_with("kernel ")) kernels_us += span.us;
  }
  if (runs == 0) return absl::InvalidArgumentError("not a trace of a session: it contains no Run");
  for (const int process : processes) AddOwnTimes(spans, process, first_us, last_us, totals);
  const double whole_us = std::max(last_us - first_us, 1e-3);
  std::string out = absl::StrFormat(
      "%d Runs in %.1f ms. The program was blocked %d times, %.1f ms (%.0f %%); kernels ran for "
      "%.1f ms (%.0f %%).\n",
      runs, whole_us / 1e3, waits, blocked_us / 1e3, 100 * blocked_us / whole_us, kernels_us / 1e3,
      100 * kernels_us / whole_us);
  if (trace.contains("otherData") && trace["otherData"].is_object())
    if (const auto dropped = trace["otherData"].value("spans_dropped", uint64_t{0}); dropped > 0)
      absl::StrAppend(&out, dropped, " spans found no room and are not counted here.\n");
  return out + Table(totals, whole_us);
}

}  // namespace

absl::StatusOr<std::string> TraceSummary(std::string_view json) {
  try {
    return Summary(nlohmann::json::parse(json));
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("not a trace: it is not JSON with traceEvents");
  }
}

void AddTraceCommand(Arguments& app) {
  const auto file = std::make_shared<std::string>();
  Command trace = app.Subcommand(
      "trace", "Summarise where a program's time went (PROFILE=FILE, docs/latency.md)");
  trace.Add("file", file.get(), "The trace file").Required().ExistingPath();
  trace.Runs([file] {
    BlockSignals();
    return RunTrace(*file);
  });
}

}  // namespace outboard::cli
