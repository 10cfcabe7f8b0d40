#include "tests/bench/schedule_figures.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/bench/report.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRepeats = 7;

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Measure(const test::Program& program) {
  Graph recording;
  const std::string bytes =
      ValueOrDie(EncodeGraph(test::RecordProgram(recording, program, test::Size::kReal))).bytes;
  std::vector<double> total, scheduling;
  absl::flat_hash_set<GraphId> distinct;
  size_t kernels = 0;
  for (int i = 0; i < kRepeats; ++i) {
    Graph graph;
    const UOp* const sink = ValueOrDie(DecodeGraph(graph, bytes));
    distinct.clear();
    const Clock::time_point begin = Clock::now();
    const schedule::Schedule schedule =
        ValueOrDie(schedule::MakeSchedule(graph, sink, HostTarget()));
    scheduling.push_back(Seconds(begin));
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      if (!distinct.insert(ValueOrDie(EncodeGraph(kernel.ast)).id).second) continue;
      codegen::LoopNest analyzed = ValueOrDie(codegen::AnalyzeKernel(kernel.ast));
      const auto opts = codegen::HeuristicOpts(analyzed, {});
      ValueOrDie(codegen::ApplyOpts(std::move(analyzed), opts, {}));
    }
    total.push_back(Seconds(begin));
    kernels = schedule.kernels.size();
  }
  Report("gpt_lower_s", Quantile(total, 0.5), "s", "",
         absl::StrCat("schedule and plan of ", program.name, ", of which ",
                      Quantile(scheduling, 0.5), " s schedule"));
  Report("gpt_kernels", static_cast<double>(kernels), "count", "", program.name);
  Report("gpt_kernels_distinct", static_cast<double>(distinct.size()), "count", "",
         "to be compiled");
}

}  // namespace

void ScheduleFigures() {
  for (const test::Program& program : test::Programs())
    if (program.name == "gpt_step_12_layers") Measure(program);
}

}  // namespace outboard::bench
