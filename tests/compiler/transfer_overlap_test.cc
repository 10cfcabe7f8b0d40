// What training steps on several devices wait for, counted on their schedules: how many transfers
// follow one from another, and how much of a slow link's time the kernels hide.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/schedule/schedule.h"
#include "compiler/shard/shard.h"
#include "compiler/shard/step_state.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

using Kind = schedule::ScheduledStep::Kind;
using schedule::Schedule;

struct Step {
  Graph graph;
  Schedule schedule;
};

// Of the program's last Run on `devices`, as a later step finds its state.
void MakeStep(const std::string& name, shard::Spread spread, int64_t devices, Step& step) {
  const auto program = std::find_if(Programs().begin(), Programs().end(),
                                    [&](const Program& p) { return p.name == name; });
  std::vector<int64_t> donated;
  const UOp* const sink = RecordProgram(step.graph, *program, Size::kReal, &donated);
  shard::ShardOptions options{.spread = spread};
  options.state.resize(ParamsOf(sink).size());
  for (const int64_t slot : donated) options.state[slot] = true;
  options.results = {shard::Layout{}};  // the loss is fetched
  const shard::Mesh mesh{{devices}};
  const shard::ShardedGraph first = ValueOrDie(ShardGraph(step.graph, sink, mesh, {}, options));
  const std::vector<shard::Layout> layouts =
      shard::StateOf(sink, options).LayoutsAfter({}, first.results);
  const shard::ShardedGraph later =
      ValueOrDie(ShardGraph(step.graph, sink, mesh, layouts, options));
  step.schedule =
      ValueOrDie(schedule::MakeSchedule(step.graph, later.sink, TestTarget(), donated));
}

// Transfers of which each starts only when the one before has come, in the longest such row: so
// many times a step waits for a message that has just left its partners.
int TransfersInARow(const Schedule& schedule) {
  std::vector<int> row(schedule.buckets.size());
  int now = 0;
  for (const auto& [kind, index] : schedule.steps) {
    if (kind == Kind::kStart) row[index] = now + 1;
    if (kind == Kind::kWait) now = std::max(now, row[index]);
  }
  return now;
}

// On devices whose kernels take `compute_s` in all, divided by operations and bytes, and which send
// to each other at `bytes_per_s`, each as much as the other.
struct Times {
  double link_s = 0, step_s = 0, compute_s = 0;
  double hidden() const { return 1 - (step_s - compute_s) / link_s; }
};
Times Play(const Schedule& schedule, double compute_s, double bytes_per_s) {
  // Of a core: operations and bytes that take the same time.
  constexpr double kOperationsOfAByte = 5;
  std::vector<double> kernel_s;
  double all = 0;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    const codegen::LoopNest nest = ValueOrDie(codegen::AnalyzeKernel(kernel.ast));
    kernel_s.push_back(static_cast<double>(nest.flops) +
                       kOperationsOfAByte * static_cast<double>(nest.bytes));
    all += kernel_s.back();
  }
  Times times{.compute_s = compute_s};
  std::vector<double> came(schedule.buckets.size());
  double now = 0, link_free = 0;
  for (const auto& [kind, index] : schedule.steps) {
    if (kind == Kind::kKernel) now += kernel_s[index] / all * compute_s;
    if (kind == Kind::kWait) now = std::max(now, came[index]);
    if (kind != Kind::kStart) continue;
    double bytes = 0;
    for (const int t : schedule.buckets[index])
      bytes += static_cast<double>(schedule.buffers[schedule.transfers[t].send].bytes());
    link_free = std::max(link_free, now) + bytes / bytes_per_s;
    came[index] = link_free;
    times.link_s += bytes / bytes_per_s;
    if (std::getenv("OUTBOARD_SHOW") != nullptr)
      std::printf("  bucket %d: %zu transfers, %.3g MB, starts at %.0f ms, is there at %.0f ms\n",
                  index, schedule.buckets[index].size(), bytes / 1e6, now * 1e3, link_free * 1e3);
  }
  times.step_s = now;
  return times;
}

// On one core a step of 4 passages takes 0.45 s; 1 Gbit/s.
TEST(TransferOverlap, ADataParallelStep_HidesMostOfItsGradients) {
  Step step;
  MakeStep("gpt_step_12_layers", shard::Spread::kData, 2, step);
  const Times times = Play(step.schedule, 0.45, 1e9 / 8);
  std::printf("%zu transfers in %zu buckets, %d in a row; the link takes %.0f ms, the step %.0f ms "
              "longer: %.2f hidden\n",
              step.schedule.transfers.size(), step.schedule.buckets.size(),
              TransfersInARow(step.schedule), times.link_s * 1e3,
              (times.step_s - times.compute_s) * 1e3, times.hidden());
  EXPECT_GT(times.hidden(), 0.6);
  // What leaves a device takes half of a round trip to the other.
  EXPECT_LE(TransfersInARow(step.schedule), 2);
}

}  // namespace
}  // namespace outboard::test
