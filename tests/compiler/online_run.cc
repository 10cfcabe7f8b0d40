#include "tests/compiler/online_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/program/interpret.h"
#include "compiler/proof/in_range.h"
#include "compiler/reference/interpret.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {

using codegen::Opt;
using codegen::OptKind;
using program::OnlineTile;

schedule::Schedule Scheduled(Graph& graph, const UOp* sink) {
  return ValueOrDie(schedule::MakeSchedule(graph, sink, CudaTarget("sm_90", kMultiprocessors), {},
                                           {.scores = schedule::ScorePolicy::kRecompute}));
}

std::vector<Opt> OptsOf(const OnlineTile& tile) {
  return {{OptKind::kOnline, 0, program::OnlineAmount(tile)}};
}

static bool ComputesScores(const UOp* ast) {
  return !codegen::PanelsOf(*codegen::AnalyzeKernel(ast), /*ends=*/true).empty();
}

program::Program ProgramOf(const UOp* ast, const Ways& ways) {
  Graph guards;
  const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, ast));
  const std::vector<Opt> opts = ways.tile == nullptr ? std::vector<Opt>{} : OptsOf(*ways.tile);
  const auto plan = program::PlanOnline(kernel, CudaTarget(ways.arch, kMultiprocessors),
                                           ways.tile == nullptr ? nullptr : &opts);
  OB_CHECK_OK(plan.status());
  OB_CHECK(plan->has_value());
  return ValueOrDie(program::ExpandOnline(**plan));
}

void RunAsProgram(const UOp* ast, const Ways& ways, uint32_t seed, Buffers& buffers,
                  int64_t* steps) {
  const program::Program program = ProgramOf(ast, ways);
  const program::RunReport report = program::Interpret(program, buffers, ways.vars, {.seed = seed});
  ASSERT_TRUE(report.ok()) << report.message << ToString(program);
  if (steps != nullptr) *steps += report.steps;
}

void RunAsPtx(const UOp* ast, const Ways& ways, Buffers& buffers) {
  CompileOptions options{.target = CudaTarget(ways.arch, kMultiprocessors),
                         .dump = std::getenv("DUMP") != nullptr};
  if (ways.tile != nullptr) options.opts = OptsOf(*ways.tile);
  const auto compiled = CompileKernel(ast, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const bool groups = ways.tile != nullptr && ways.tile->groups;
  ASSERT_TRUE(absl::StrContains(compiled->object, groups ? "wgmma.mma_async" : "mma.sync"));
  EXPECT_FALSE(absl::StrContains(compiled->object, ".local"));
  if (const std::string ptxas = FindPtxas(); (groups || ways.assembled) && !ptxas.empty()) {
    const auto assembled = AssembleKernel(ptxas, compiled->object, ways.arch);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_LE(assembled->stack_bytes + assembled->spill_bytes, ways.spilled_bytes_max)
        << compiled->object;
    if (std::getenv("SHOW") != nullptr)
      std::printf("%lld registers\n", static_cast<long long>(assembled->registers));
    EXPECT_FALSE(assembled->serialised);
    EXPECT_FALSE(assembled->ignored);
  }
  const absl::Status ran = RunOnPtxMachine(*compiled, buffers, ways.vars);
  ASSERT_TRUE(ran.ok()) << ran << "\n" << compiled->object;
}

std::vector<HostTensor> RandomParams(const UOp* sink, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink)) {
    HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
    const int width = ByteWidth(param->dtype);
    tensor.bytes.resize(tensor.ElementCount() * width);
    for (int64_t i = 0; i < tensor.ElementCount(); ++i)
      StoreFloat(param->dtype,
                 RoundTo(param->dtype, std::uniform_real_distribution<>(-2, 2)(random)),
                 tensor.bytes.data() + i * width);
    params.push_back(std::move(tensor));
  }
  return params;
}

std::vector<std::string> RunSchedule(const schedule::Schedule& schedule,
                                     std::span<const HostTensor> params, size_t results,
                                     const RunKernel& run) {
  using Kind = schedule::ScheduledBuffer::Kind;
  Buffers memory;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
    if (buffer.kind == Kind::kInput) memory.back() = params[buffer.index].bytes;
  }
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    Buffers own;
    for (const int i : kernel.buffers) own.push_back(memory[i]);
    if (ComputesScores(kernel.ast))
      run(kernel.ast, own);
    else
      EXPECT_EQ(WalkKernel(kernel.ast, own), absl::OkStatus());
    for (size_t slot = 0; slot < own.size(); ++slot) memory[kernel.buffers[slot]] = own[slot];
  }
  std::vector<std::string> out(results);
  for (size_t i = 0; i < schedule.buffers.size(); ++i)
    if (schedule.buffers[i].kind == Kind::kOutput) out[schedule.buffers[i].index] = memory[i];
  return out;
}

void ExpectNear(const Results& want, const std::vector<std::string>& got) {
  for (size_t r = 0; r < want.size(); ++r) {
    const double tolerance = want[r].dtype == DType::kF32 ? 0x1p-16 : 0x1p-6;
    const std::vector<double> numbers = FloatsOf(want[r]);
    double largest = 0;
    for (const double number : numbers)
      if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
    const int width = ByteWidth(want[r].dtype);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double x = LoadFloat(want[r].dtype, got[r].data() + i * width);
      ASSERT_EQ(std::isnan(x), std::isnan(numbers[i])) << "result " << r << " element " << i;
      if (!std::isnan(x)) {
        ASSERT_NEAR(x, numbers[i], tolerance * largest) << "result " << r << " element " << i;
      }
    }
  }
}

void CheckGraph(const UOp* sink, const Ways& ways, size_t kernels) {
  const std::vector<HostTensor> params = RandomParams(sink, 1);
  const Results want = ValueOrDie(Interpret(sink, params));
  Graph g;
  const auto schedule = Scheduled(g, sink);
  const auto with_scores = static_cast<size_t>(
      std::count_if(schedule.kernels.begin(), schedule.kernels.end(),
                    [](const auto& kernel) { return ComputesScores(kernel.ast); }));
  ASSERT_EQ(with_scores, kernels) << ScheduleToString(schedule);
  for (const uint32_t seed : {1u, 2u}) {
    if (!ways.interpreted) break;
    ExpectNear(want, RunSchedule(schedule, params, want.size(), [&](const UOp* ast, Buffers& own) {
                 RunAsProgram(ast, ways, seed, own);
               }));
    if (testing::Test::HasFatalFailure()) return;
  }
  ExpectNear(want, RunSchedule(schedule, params, want.size(),
                               [&](const UOp* ast, Buffers& own) { RunAsPtx(ast, ways, own); }));
}

void CheckAttention(const AttentionShape& shape, const Ways& ways, size_t kernels) {
  SCOPED_TRACE(testing::Message() << shape.queries << " queries, " << shape.keys << " keys, width "
                                  << shape.width << (shape.causal ? ", causal" : "")
                                  << (shape.backward ? ", backward" : ""));
  Graph graph;
  CheckGraph(AttentionGraph(graph, shape), ways, kernels);
}

}  // namespace outboard::test
