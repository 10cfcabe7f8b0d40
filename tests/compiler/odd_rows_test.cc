// Rows of a length that is no multiple of a vector, which threads have in vectors nonetheless: what
// kernels compute of them on the PTX machine, against the interpreter, and what they touch.
// docs/decisions/228-vectors-of-odd-rows.md.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/divide_up.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/target.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/row_kernels.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

std::string TextOf(const LogitRows& logits) {
  return absl::StrCat(logits.rows, " x ", logits.columns, " of ", std::string(Name(logits.dtype)));
}

// Rows begin at each place of a vector, and end at each.
constexpr LogitRows kLogits[] = {
    {17, 257, DType::kBF16},  {17, 257, DType::kF32},   {9, 1031, DType::kBF16},
    {9, 1031, DType::kF32},   {9, 1031, DType::kF16},   {5, 2053, DType::kF32},
    {5, 2054, DType::kBF16},  {3, 10007, DType::kBF16}, {3, 10007, DType::kF32},
};

void ExpectOnMachine(const Program& program, const LogitRows& logits, double tolerance) {
  for (const char* const arch : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(absl::StrCat(arch, ", ", TextOf(logits)));
    Graph graph;
    const UOp* const sink = RecordProgram(graph, program, Size::kSmall);
    const GpuSchedule gpu(sink, arch);
    for (const CompiledKernel& kernel : gpu.compiled()) EXPECT_TRUE(kernel.given_up.empty());
    gpu.ExpectAsInterpreted(sink, {}, tolerance);
  }
}

TEST(OddRows, GradientsOfLosses_AreTheInterpreters) {
  for (const LogitRows& logits : kLogits)
    ExpectOnMachine(LossGradient("loss", logits), logits, logits.dtype == DType::kF32 ? 1e-5 : 1e-2);
}

TEST(OddRows, Softmax_IsTheInterpreters) {
  for (const LogitRows& logits : kLogits)
    ExpectOnMachine(SoftmaxOfRows("softmax", logits), logits,
                    logits.dtype == DType::kF32 ? 1e-5 : 1e-2);
}

TEST(OddRows, PlacesOfMaxima_AreTheInterpreters) {
  for (const LogitRows& logits : kLogits) ExpectOnMachine(ArgmaxOfRows("argmax", logits), logits, 0);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const LogitRows few = {2, 50257, dtype};
    ExpectOnMachine(ArgmaxOfRows("argmax", few), few, 0);
  }
}

// ---- rows that threads keep

struct Kept {
  RowFunction function;
  DType dtype;
  int64_t columns;
  bool in_place = false;
};

// Eight rows begin at each place of a vector.
constexpr Kept kKept[] = {
    {RowFunction::kLogSoftmax, DType::kBF16, 8193},
    {RowFunction::kSoftmax, DType::kF32, 8193, true},
    {RowFunction::kSoftmax, DType::kF16, 10002},
    {RowFunction::kStatistics, DType::kBF16, 16391},
    {RowFunction::kStatistics, DType::kF32, 16391},
    {RowFunction::kSoftmax, DType::kBF16, 50257},
    {RowFunction::kSoftmax, DType::kBF16, 50257, true},
    {RowFunction::kSoftmax, DType::kF32, 50257},
};

std::string TextOf(const Kept& c) {
  return absl::StrCat(Name(c.function), " of ", std::string(Name(c.dtype)), ", ", c.columns,
                      c.in_place ? ", in place" : "");
}

// The list with vectors of one number: as many of each thread as before, or more.
std::vector<codegen::Opt> BySingleNumbers(std::vector<codegen::Opt> opts, int64_t columns) {
  using codegen::OptKind;
  std::erase_if(opts, [](const codegen::Opt& opt) { return opt.kind == OptKind::kVector; });
  int64_t threads = 1, align = 1;
  for (const codegen::Opt& opt : opts) {
    if (opt.kind == OptKind::kShare) threads = opt.amount;
    if (opt.kind == OptKind::kAlign) align = opt.amount;
  }
  for (codegen::Opt& opt : opts)
    if (opt.kind == OptKind::kUnroll || opt.kind == OptKind::kUpcast)
      opt.amount = DivideUp(columns + align - 1, threads);
  return opts;
}

struct Counted {
  double sectors = 0, instructions = 0;  // to the least; for a number
};
Counted CountsOf(const RowKernel& kernel, const std::vector<codegen::Opt>& opts,
                 const Target& target) {
  Graph g;
  const UOp* const sink = MakeRowKernel(g, kernel);
  const auto compiled = CompileKernel(sink, {.target = target, .opts = opts});
  if (!compiled.ok()) return {};
  const Buffers start = RandomBuffers(sink, 1);
  Buffers got = start;
  MachineCounts counts;
  EXPECT_EQ(RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts), absl::OkStatus());
  ExpectRows(kernel, got, RowsOf(kernel, start), ToleranceOf(kernel.dtype),
             kernel.function != RowFunction::kSoftmax);
  return {SectorsOf(kernel, counts), 32.0 * static_cast<double>(counts.warp_instructions) /
                                         static_cast<double>(kernel.rows * kernel.columns)};
}

void ExpectKept(const Kept& c, const std::string& arch) {
  SCOPED_TRACE(absl::StrCat(arch, ", ", TextOf(c)));
  Graph g;
  const RowKernel kernel = {c.function, c.dtype, 8, c.columns, c.in_place};
  const UOp* const sink = MakeRowKernel(g, kernel);
  const Target target = CudaTarget(arch, 132);
  const auto opts = codegen::HeuristicOpts(*codegen::AnalyzeKernel(sink), target);
  const std::string text = codegen::OptsToString(opts);
  EXPECT_TRUE(absl::StrContains(text, "VECTOR:1:4")) << text;
  const Counted counted = CountsOf(kernel, opts, target),
                single = CountsOf(kernel, BySingleNumbers(opts, c.columns), target);
  if (testing::Test::HasFatalFailure()) return;
  std::printf("%s, %s: %.3f of the least sectors (%.3f), %.2f instructions a number (%.2f); %s\n",
              arch.c_str(), TextOf(c).c_str(), counted.sectors, single.sectors,
              counted.instructions, single.instructions, text.c_str());
  EXPECT_LE(counted.sectors, 1.1);
}

TEST(OddRows, OfKernelsThatKeepThem_AreReadOnce) {
  for (const char* const arch : {"sm_80", "sm_90a"})
    for (const Kept& c : kKept) {
      ExpectKept(c, arch);
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace outboard::test
