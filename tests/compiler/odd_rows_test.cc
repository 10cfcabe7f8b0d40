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
#include "compiler/program/interpret.h"
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

// Rows that begin at each place of a vector, and end at each; from 1,024 numbers on their gradient
// is in vectors, and the last ones are kept in them.
constexpr LogitRows kLogits[] = {
    {17, 257, DType::kBF16},  {17, 257, DType::kF32},   {9, 1031, DType::kBF16},
    {9, 1031, DType::kF32},   {9, 1031, DType::kF16},   {5, 2053, DType::kF32},
    {5, 2054, DType::kBF16},  {3, 10007, DType::kBF16}, {3, 10007, DType::kF32},
    {2, 33001, DType::kBF16}, {2, 50257, DType::kF32},
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
    ExpectOnMachine(LossGradient("loss", logits), logits,
                    logits.dtype == DType::kF32 ? 1e-5 : 1e-2);
}

TEST(OddRows, Softmax_IsTheInterpreters) {
  for (const LogitRows& logits : kLogits)
    ExpectOnMachine(SoftmaxOfRows("softmax", logits), logits,
                    logits.dtype == DType::kF32 ? 1e-5 : 1e-2);
}

TEST(OddRows, PlacesOfMaxima_AreTheInterpreters) {
  for (const LogitRows& logits : kLogits)
    ExpectOnMachine(ArgmaxOfRows("argmax", logits), logits, 0);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const LogitRows few = {2, 50257, dtype};
    ExpectOnMachine(ArgmaxOfRows("argmax", few), few, 0);
  }
}

// ---- kernels without reductions

// The gradient of a loss over logits whose maxima and factors of exponentials are inputs: stored in
// a buffer of its own, or over the logits (`in_place`).
struct Gradient {
  DType dtype = DType::kF32;
  int64_t rows = 1, columns = 1;
  bool in_place = false;
};

const UOp* MakeGradient(Graph& g, const Gradient& kernel) {
  const UOp *row = Range(g, 0, kernel.rows), *column = Range(g, 1, kernel.columns);
  const int64_t elements = kernel.rows * kernel.columns;
  const UOp* const place = RowMajor(g, {row, column}, {kernel.rows, kernel.columns});
  const auto of_row = [&](int64_t slot, DType dtype) {
    return LoadAt(g, slot, dtype, kernel.rows, row);
  };
  const UOp* const x =
      Cast(g, LoadAt(g, kernel.in_place ? 0 : 4, kernel.dtype, elements, place), DType::kF32);
  const UOp* const minus_max = Alu(g, Op::kNeg, of_row(1, DType::kF32));
  const UOp* const factor = of_row(2, DType::kF32);
  const UOp* const is_label = Alu(g, Op::kCmpEq, Cast(g, column, DType::kI32),
                                  Cast(g, Within(g, Cast(g, of_row(3, DType::kI32), DType::kI64),
                                                 kernel.columns), DType::kI32));
  const UOp* const value =
      Add(g, Mul(g, Alu(g, Op::kExp, Add(g, x, minus_max)), factor),
          Alu(g, Op::kWhere, is_label, factor, ConstFloat(g, DType::kF32, 0)));
  return Sink(g, {StoreAt(g, 0, elements, place, Cast(g, value, kernel.dtype))});
}

constexpr char kSingleNumbers[] = "LANE:1:32 WARP:1:8 GRID:0:2";  // as was chosen before

struct GradientCounts {
  int64_t blocks = 0;
  double sectors = 0, instructions = 0;
};
GradientCounts RunGradient(const Gradient& kernel, const std::vector<codegen::Opt>& opts,
                           const Target& target) {
  Graph g;
  const UOp* const sink = MakeGradient(g, kernel);
  const auto compiled = CompileKernel(sink, {.target = target, .opts = opts});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  const Buffers start = RandomBuffers(sink, 1);
  Buffers got = start, want = start;
  EXPECT_EQ(WalkKernel(sink, want), absl::OkStatus());
  MachineCounts counts;
  EXPECT_EQ(RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts), absl::OkStatus());
  ExpectClose(sink, got, want, kernel.dtype == DType::kF32 ? 1e-6 : 1e-2);
  const auto numbers = static_cast<double>(kernel.rows * kernel.columns);
  const double least = 2 * numbers * ByteWidth(kernel.dtype) / 32;
  return {compiled->blocks[0], static_cast<double>(counts.global_sectors) / least,
          32.0 * static_cast<double>(counts.warp_instructions) / numbers};
}

std::vector<codegen::Opt> OptsOf(const Gradient& kernel, const Target& target) {
  Graph g;
  return codegen::HeuristicOpts(*codegen::AnalyzeKernel(MakeGradient(g, kernel)), target);
}

TEST(OddRows, GradientsWithoutReductions_AreInWholeVectors) {
  const Target target = CudaTarget("sm_90a", 132);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    for (const bool in_place : {false, true})
      for (const int64_t columns : {257, 1031, 2054, 10007}) {
        const Gradient kernel = {dtype, 17, columns, in_place};
        SCOPED_TRACE(absl::StrCat(std::string(Name(dtype)), " x ", columns, " ", in_place));
        const bool is_short = columns < 1024;
        const auto opts = is_short ? *codegen::ParseOpts("VECTOR:1:4 LANE:1:32 ALIGN:1:16 GRID:0:2")
                                   : OptsOf(kernel, target);
        const GradientCounts counts = RunGradient(kernel, opts, target);
        const GradientCounts before =
            RunGradient(kernel, *codegen::ParseOpts(kSingleNumbers), target);
        if (HasFailure()) return;
        std::printf("%s x %lld%s: %lld blocks (%lld), %.3f of the least sectors (%.3f), %.2f "
                    "instructions a number (%.2f)\n",
                    std::string(Name(dtype)).c_str(), static_cast<long long>(columns),
                    in_place ? ", in place" : "", static_cast<long long>(counts.blocks),
                    static_cast<long long>(before.blocks), counts.sectors, before.sectors,
                    counts.instructions, before.instructions);
        EXPECT_LT(counts.sectors, before.sectors);
        if (!is_short) {
          EXPECT_LT(counts.instructions, before.instructions);
        }
      }
}

// GPT-2's logits of 8 x 1,024 tokens.
TEST(OddRows, GradientOfAVocabulary_HasAnEighthOfTheBlocks) {
  const Target target = CudaTarget("sm_90a", 132);
  const Gradient kernel = {DType::kBF16, 8192, 50257};
  Graph g;
  const UOp* const sink = MakeGradient(g, kernel);
  const auto compiled = CompileKernel(sink, {.target = target});
  const auto before = CompileKernel(
      sink, {.target = target, .opts = *codegen::ParseOpts(kSingleNumbers)});
  ASSERT_TRUE(compiled.ok() && before.ok()) << compiled.status() << before.status();
  EXPECT_EQ(before->blocks[0], 1'613'824);
  EXPECT_EQ(compiled->blocks[0], 204'800);
  EXPECT_TRUE(absl::StrContains(compiled->object, "ld.global.nc.v4.b32"));
  EXPECT_TRUE(absl::StrContains(compiled->object, "st.global.v4.b32"));
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
    {RowFunction::kSoftmax, DType::kF16, 33001},
    {RowFunction::kLogSoftmax, DType::kBF16, 40962},
    {RowFunction::kStatistics, DType::kF32, 65531},
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

// Two warps with five vectors of each thread; a vector less where nobody has the fifth.
std::string OptsOfShortRows(int64_t columns) {
  const int64_t vectors = columns > 1009 ? 5 : 4;
  return absl::StrCat(
      "VECTOR:1:4 LANE:1:32 WARP:1:2 ALIGN:1:16 VECTOR:2:4 SHARE:2:64 ALIGN:2:16 UNROLL:2:",
      vectors, " VECTOR:3:4 SHARE:3:64 ALIGN:3:16 UNROLL:3:", vectors, " UPCAST:1:", vectors,
      " GRID:0:1");
}

// Rows that begin at each place of a vector, by lists that are chosen for longer ones alone.
TEST(OddRows, ShortOnes_AreTheInterpreters) {
  const Target target = CudaTarget("sm_90a", 132);
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const bool in_place : {false, true})
      for (const int64_t columns : {911, 1005, 1021, 1031, 1262}) {
        SCOPED_TRACE(absl::StrCat(std::string(Name(dtype)), " x ", columns, " ", in_place));
        const RowKernel kernel = {RowFunction::kSoftmax, dtype, 17, columns, in_place};
        const auto opts = *codegen::ParseOpts(OptsOfShortRows(columns));
        EXPECT_GT(CountsOf(kernel, opts, target).sectors, 0);
        if (HasFailure()) return;
      }
}

// The program's interpreter reports reads of what was never written. At the end of some rows two
// vectors of a thread are at an edge: one that most threads have within the row, and one that few
// have there.
TEST(OddRows, WhatIsKept_IsWrittenBeforeItIsRead) {
  const Target target = CudaTarget("sm_90a", 132);
  const auto expect = [&](const RowKernel& kernel, const std::string& opts) {
    SCOPED_TRACE(absl::StrCat(std::string(Name(kernel.dtype)), " x ", kernel.columns));
    Graph g;
    const UOp* const sink = MakeRowKernel(g, kernel);
    const auto program = ProgramOf(
        sink,
        !opts.empty()
            ? opts
            : codegen::OptsToString(codegen::HeuristicOpts(*codegen::AnalyzeKernel(sink), target)),
        target);
    ASSERT_TRUE(program.ok()) << program.status();
    const Buffers start = RandomBuffers(sink, 1);
    Buffers got = start;
    const program::RunReport report =
        program::Interpret(*program, got, {}, {.seed = 1, .steps_max = 200'000'000});
    ASSERT_TRUE(report.ok()) << report.message;
    ExpectRows(kernel, got, RowsOf(kernel, start), ToleranceOf(kernel.dtype),
               kernel.function != RowFunction::kSoftmax);
  };
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const int64_t columns : {911, 1005, 1009, 1021, 1023, 1031, 1262})
      expect({RowFunction::kSoftmax, dtype, 3, columns}, OptsOfShortRows(columns));
  for (const int64_t columns : {40957, 49149})
    expect({RowFunction::kSoftmax, DType::kBF16, 2, columns}, "");
}

TEST(OddRows, OptsThatAreLegal) {
  Graph g;
  const UOp* const sink = MakeRowKernel(g, {RowFunction::kSoftmax, DType::kF32, 8, 1001});
  const auto is_legal = [&](const char* opts, const Target& target) {
    const std::vector<codegen::Opt> list = *codegen::ParseOpts(opts);
    return codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), list, target).ok();
  };
  const Target cuda = CudaTarget("sm_90", 132);
  const char* const along = "VECTOR:1:4 LANE:1:32 GRID:0:1";
  EXPECT_TRUE(is_legal(along, cuda));
  EXPECT_TRUE(is_legal("VECTOR:1:4 LANE:1:32 ALIGN:1:4 UPCAST:1:8 GRID:0:1", cuda));
  EXPECT_TRUE(is_legal("VECTOR:1:4 LANE:1:32 ALIGN:1:8 UPCAST:1:8 GRID:0:1", cuda));
  EXPECT_FALSE(is_legal("VECTOR:1:4 GRID:0:1", cuda)) << "no threads divide it";
  EXPECT_FALSE(is_legal("VECTOR:1:4 LANE:1:32 ALIGN:1:2 UPCAST:1:8 GRID:0:1", cuda));
  EXPECT_FALSE(is_legal("VECTOR:1:4 LANE:1:32 ALIGN:1:8 UPCAST:1:4 GRID:0:1", cuda))
      << "an aligned axis that is not written out";
  Target other = cuda;
  other.kind = TargetKind::kOpenCl;
  EXPECT_FALSE(is_legal(along, other));
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
