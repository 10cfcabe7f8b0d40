#include "tests/bench/rewrite_figures.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/rewrite/rewriter.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/bench/report.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::bench {
namespace {

constexpr int kRepeats = 15;

// What scheduling `bytes` once adds to the totals.
RewriteTotals TotalsOfSchedule(const std::string& bytes) {
  Graph graph;
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, bytes));
  const RewriteTotals before = TotalsOfRewrites();
  ValueOrDie(schedule::MakeSchedule(graph, sink, HostTarget()));
  const RewriteTotals after = TotalsOfRewrites();
  return {.visits = after.visits - before.visits,
          .matches = after.matches - before.matches,
          .nanoseconds = after.nanoseconds - before.nanoseconds,
          .attempts = after.attempts - before.attempts};
}

void Measure(const test::Program& program) {
  Graph recording;
  const std::string bytes =
      ValueOrDie(EncodeGraph(test::RecordProgram(recording, program, test::Size::kReal))).bytes;
  CountAttempts(true);
  const RewriteTotals counted = TotalsOfSchedule(bytes);
  CountAttempts(false);
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i)
    seconds.push_back(static_cast<double>(TotalsOfSchedule(bytes).nanoseconds) * 1e-9);
  const double time = Quantile(seconds, 0.5);
  Report("rewrite_attempts_per_s", static_cast<double>(counted.attempts) / time, "1/s", "",
         absl::StrCat(counted.attempts, " attempts to schedule ", program.name));
  Report("rewrite_visits_per_s", static_cast<double>(counted.visits) / time, "1/s", "",
         absl::StrFormat("%d look-ups, %d of them matches, in %.1f ms, to schedule %s",
                         counted.visits, counted.matches, time * 1e3, program.name));
}

}  // namespace

void RewriteFigures() {
  for (const test::Program& program : test::Programs())
    if (program.name == "mnist_step" || program.name == "gpt_step_2_layers") Measure(program);
}

}  // namespace outboard::bench
