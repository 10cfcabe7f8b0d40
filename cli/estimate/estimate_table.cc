#include "cli/estimate/estimate_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/common.h"

namespace outboard::cli {

namespace {

using session::ClassEstimate;
using session::EstimateRange;
using session::RecordedWork;

std::string Duration(double seconds) {
  if (seconds < 1) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 120) return absl::StrFormat("%.1f s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.1f min", seconds / 60);
  return absl::StrFormat("%.1f h", seconds / 3600);
}

std::string Usd(double micro_usd) { return absl::StrFormat("$%.4f", micro_usd / 1e6); }

std::string NameOf(const ClassEstimate& estimate) {
  return estimate.of.name.empty() ? "all devices" : estimate.of.name;
}

session::GraphWork AllOf(const RecordedWork& work) { return {.kernels = work.kernels}; }

std::string RangeJson(const char* name, const std::optional<EstimateRange>& range) {
  if (!range.has_value())
    return absl::StrFormat("\"%s\": null, \"%s_low\": null, \"%s_high\": null", name, name, name);
  return absl::StrFormat("\"%s\": %.6g, \"%s_low\": %.6g, \"%s_high\": %.6g", name,
                         range->expected, name, range->low, name, range->high);
}

}  // namespace

std::string EstimateTable(const RecordedWork& work, const std::vector<ClassEstimate>& estimates) {
  const session::GraphWork all = AllOf(work);
  std::string text = absl::StrFormat(
      "%d steps, %d different graphs: %.4g operations in products, %.4g others, %.4g bytes; %s of "
      "this machine's time\n",
      work.steps, work.graphs, all.products(), all.others(), all.bytes(), Duration(work.client_s));
  size_t width = 11;
  for (const ClassEstimate& of : estimates) width = std::max(width, NameOf(of).size());
  const int name = static_cast<int>(std::min<size_t>(width, 64));
  absl::StrAppend(&text, absl::StrFormat("%-*s  %9s  %-22s  %9s  %s\n", name, "class", "time",
                                         "range", "cost", "range"));
  for (const ClassEstimate& of : estimates) {
    if (!of.seconds.has_value()) {
      absl::StrAppend(&text, absl::StrFormat("%-*s  %9s  %s\n", name, NameOf(of), "unknown",
                                             of.unknown));
      continue;
    }
    absl::StrAppend(
        &text, absl::StrFormat("%-*s  %9s  %-22s  %9s  %s%s\n", name, NameOf(of),
                               Duration(of.seconds->expected),
                               absl::StrCat(Duration(of.seconds->low), " to ",
                                            Duration(of.seconds->high)),
                               Usd(of.micro_usd->expected),
                               absl::StrCat(Usd(of.micro_usd->low), " to ",
                                            Usd(of.micro_usd->high)),
                               of.is_measured         ? "  (measured)"
                               : of.of.rates_on_paper ? "  (rates on paper)"
                                                     : ""));
  }
  return text;
}

std::string EstimateJson(const RecordedWork& work, const std::vector<ClassEstimate>& estimates) {
  const session::GraphWork all = AllOf(work);
  std::string text = absl::StrFormat(
      "{\"steps\": %d, \"runs\": %d, \"sessions\": %d, \"graphs\": %d, "
      "\"product_operations\": %.6g, \"other_operations\": %.6g, \"bytes\": %.6g, "
      "\"client_seconds\": %.6g, \"classes\": [",
      work.steps, work.runs, work.sessions, work.graphs, all.products(), all.others(),
      all.bytes(), work.client_s);
  const auto rate = [](double value) {
    return value > 0 ? absl::StrFormat("%.6g", value) : std::string("null");
  };
  bool first = true;
  for (const ClassEstimate& of : estimates) {
    absl::StrAppend(
        &text, first ? "" : ", ",
        absl::StrFormat(
            "{\"class\": %s, %s, %s, \"measured\": %s, \"rates_on_paper\": %s, \"gflops\": %s, "
            "\"tf32_gflops\": %s, \"half_gflops\": %s, \"f8_gflops\": %s, "
            "\"memory_gb_per_s\": %s, \"run_per_hour_micro_usd\": %d, \"unknown\": %s}",
            of.of.name.empty() ? "null" : Quoted(of.of.name), RangeJson("seconds", of.seconds),
            RangeJson("micro_usd", of.micro_usd), of.is_measured ? "true" : "false",
            of.of.rates_on_paper ? "true" : "false",
            rate(of.of.gflops), rate(of.of.tf32_gflops), rate(of.of.half_gflops),
            rate(of.of.f8_gflops), rate(of.of.memory_gb_per_s),
            of.of.run_per_hour_micro_usd, of.unknown.empty() ? "null" : Quoted(of.unknown)));
    first = false;
  }
  return absl::StrCat(text, "]}\n");
}

}  // namespace outboard::cli
