#include "tests/bench/sweep_figures.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTen = 10, kEight = 8, kTurns = 5, kSteps = 300;

std::string SweepCommand(const Cloud& cloud, const std::string& data, int trials, int steps) {
  std::string seeds;
  for (int i = 1; i <= trials; ++i) absl::StrAppend(&seeds, i > 1 ? "," : "", i);
  return absl::StrCat(cloud.Prefix(), "OUTBOARD_DATA=", data, " ", Beside("outboard"),
                      " sweep -j ", trials, " -p seed=", seeds, " -- ", Beside("sweep_trial"), " ",
                      steps, " {seed} 2>&1");
}

double Seconds(const std::string& command) {
  const Clock::time_point begin = Clock::now();
  OutputOf(command);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double TenRunning(const Cloud& cloud) {
  const test::TempFolder folder;
  const auto begin =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch());
  OutputOf(SweepCommand(cloud, folder.path(), kTen, 2));
  const std::string logs =
      OutputOf(absl::StrCat("cat ", folder.path(), "/sweeps/*/trial-*.log"));
  int64_t last = 0;
  int found = 0;
  for (const absl::string_view line : absl::StrSplit(logs, '\n')) {
    int64_t at = 0;
    const std::string text(line);
    if (!text.starts_with("running_ms=") || !absl::SimpleAtoi(text.substr(11), &at)) continue;
    ++found;
    last = std::max(last, at);
  }
  OB_CHECK(found == kTen);
  return static_cast<double>(last - begin.count()) / 1e3;
}

}  // namespace

void SweepFigures() {
  const Cloud cloud(1, {}, {"--devices", absl::StrCat(kTen)});
  TenRunning(cloud);  // compiles
  std::vector<double> running, ratios, by_hand;
  for (int turn = 0; turn < kTurns; ++turn) running.push_back(TenRunning(cloud));
  Report("sweep_ten_running_s", Quantile(running, 0.5), "s", "",
         "from the command until the first step of each of ten trials is done");
  const std::string hand =
      absl::StrCat(cloud.Prefix(), "sh -c 'for i in $(seq ", kEight, "); do ",
                   Beside("sweep_trial"), " ", kSteps, " $i >/dev/null & done; wait'");
  for (int turn = 0; turn < kTurns; ++turn) {
    const test::TempFolder folder;
    by_hand.push_back(Seconds(hand));
    ratios.push_back(Seconds(SweepCommand(cloud, folder.path(), kEight, kSteps)) / by_hand.back());
  }
  Report("sweep_overhead_ratio", Quantile(ratios, 0.5), "ratio",
         absl::StrCat("by hand: ", Quantile(by_hand, 0.5), " s"),
         "eight trials at a time");
}

}  // namespace outboard::bench
