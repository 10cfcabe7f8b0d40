#include "tests/bench/sweep_figures.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "client/session/session.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTen = 10, kEight = 8, kTurns = 5, kPairs = 9, kSteps = 300, kGrants = 50;
// The worker starts the next executor in this time, so that one waits.
constexpr std::chrono::milliseconds kExecutorStarts{200};

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

// From the command until the first step of each of its ten programs is done, as `logs` say.
double UntilTenRun(const std::string& command, const std::string& logs_of) {
  const auto begin =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch());
  OutputOf(command);
  const std::string logs = OutputOf("cat " + logs_of);
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

double TenRunning(const Cloud& cloud) {
  const test::TempFolder folder;
  return UntilTenRun(SweepCommand(cloud, folder.path(), kTen, 2),
                     folder.path() + "/sweeps/*/trial-*.log");
}

// Started by hand, all at once.
double TenPrograms(const Cloud& cloud) {
  const test::TempFolder folder;
  return UntilTenRun(absl::StrCat(cloud.Prefix(), "sh -c 'for i in $(seq ", kTen, "); do ",
                                  Beside("sweep_trial"), " 2 $i >", folder.path(),
                                  "/$i.log & done; wait'"),
                     folder.path() + "/*.log");
}

// From the call until the session has its device: an executor within its walls included.
double GrantMs(const Cloud& cloud) {
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  const Clock::time_point begin = Clock::now();
  const std::unique_ptr<Session> session = ValueOrDie(Session::Connect(options));
  const std::chrono::duration<double, std::milli> passed = Clock::now() - begin;
  OB_CHECK_OK(session->Close());
  return passed.count();
}

}  // namespace

void SweepFigures() {
  const Cloud cloud(1, {}, {"--devices", absl::StrCat(kTen)});
  TenRunning(cloud);  // compiles
  std::vector<double> grants, at_once, programs;
  for (int turn = 0; turn < kGrants; ++turn) {
    std::this_thread::sleep_for(kExecutorStarts);
    grants.push_back(GrantMs(cloud));
  }
  for (int turn = 0; turn < kGrants; ++turn) at_once.push_back(GrantMs(cloud));
  Report("lease_grant_ms_p50", Quantile(grants, 0.5), "ms", "",
         absl::StrFormat("Session::Connect, connection included, by the executor that waits in its "
                         "walls; one behind the other, before the next executor waits: %.1f",
                         Quantile(at_once, 0.5)));
  for (int turn = 0; turn < kTurns; ++turn) programs.push_back(TenPrograms(cloud));
  Report("ten_programs_running_s", Quantile(programs, 0.5), "s", "",
         "from the start of ten programs until the first step of each is done");
  std::vector<double> running, ratios, by_hand;
  for (int turn = 0; turn < kTurns; ++turn) running.push_back(TenRunning(cloud));
  Report("sweep_ten_running_s", Quantile(running, 0.5), "s", "",
         "from the command until the first step of each of ten trials is done");
  // Of both: what a program keeps of its gateway is there already.
  const test::TempFolder data;
  const std::string hand =
      absl::StrCat(cloud.Prefix(), "OUTBOARD_DATA=", data.path(), " sh -c 'for i in $(seq ",
                   kEight, "); do ", Beside("sweep_trial"), " ", kSteps,
                   " $i >/dev/null & done; wait'");
  const std::string sweep = SweepCommand(cloud, data.path(), kEight, kSteps);
  for (int pair = 0; pair < kPairs; ++pair) {
    const bool sweep_first = pair % 2 == 1;  // a machine that gets slower favours who is first
    const double first = Seconds(sweep_first ? sweep : hand),
                 second = Seconds(sweep_first ? hand : sweep);
    by_hand.push_back(sweep_first ? second : first);
    ratios.push_back(sweep_first ? first / second : second / first);
  }
  Report("sweep_overhead_ratio", Quantile(ratios, 0.5), "ratio",
         absl::StrCat("by hand: ", Quantile(by_hand, 0.5), " s"),
         "eight trials at a time");
}

}  // namespace outboard::bench
