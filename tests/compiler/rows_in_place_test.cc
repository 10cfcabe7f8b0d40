// Kernels that store a row over the one that their reductions have read
// (compiler/optimize/rows_in_place.h): which Opts they take, and that they compute, for processors
// and on the PTX machine, what the same kernel does with memory of its own. The interpreter of
// programs reports a load and a store that no barrier parts.
#include "compiler/optimize/rows_in_place.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compiler/kernel/decompose_math_f64.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/optimize/threads/kept_row.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_random_opts.h"
#include "tests/compiler/ptx_assembler.h"

namespace outboard::test {
namespace {

using codegen::RangeSet;

struct Rows {
  int64_t outer, rows, length;  // outer x rows of `length` elements
  DType dtype = DType::kF32;    // of the row and what is stored over it; computed in f32
  bool ends = false;            // rows end at a VAR
  bool sums_end_apart = false;  // and what is reduced of them at another one
};

// One that is rounded to bf16 may be rounded the other way.
double Tolerance(const Rows& r) { return r.dtype == DType::kF32 ? 1e-4 : 0x1p-7; }

// The gradient of a cross-entropy: softmax(x)[i, j] - (label[i] == j), and the sum of each row's
// exponentials. Slots: 0 the gradient, 1 the sums, 2 the labels, and `x` what is read.
const UOp* LossGradient(Graph& g, const Rows& r, int64_t x) {
  const int64_t rows = r.outer * r.rows, elements = rows * r.length;
  const UOp* const end = r.ends ? Var(g, 0, 1, r.length) : nullptr;
  const UOp* const end_of_sums = r.sums_end_apart ? Var(g, 1, 1, r.length) : end;
  const auto along = [&](int64_t id, RangeKind kind) {
    const UOp* const own = kind == RangeKind::kReduce ? end_of_sums : end;
    return g.MakeChecked(Op::kRange, DType::kI64,
                         own == nullptr ? std::vector<const UOp*>{} : std::vector<const UOp*>{own},
                         {id, r.length, static_cast<int64_t>(kind)});
  };
  const UOp *a = test::Range(g, 0, r.outer), *b = test::Range(g, 1, r.rows),
            *j = along(2, RangeKind::kOutput), *k = along(3, RangeKind::kReduce),
            *m = along(4, RangeKind::kReduce);
  const UOp* const row = r.outer == 1 ? b : RowMajor(g, {a, b}, {r.outer, r.rows});
  const auto at = [&](const UOp* column) {
    return Cast(g, LoadAt(g, x, r.dtype, elements, RowMajor(g, {row, column}, {rows, r.length})),
                DType::kF32);
  };
  const UOp* const most = Fold(g, Op::kMax, at(k), {k});
  const auto exponential = [&](const UOp* column) {
    return Alu(g, Op::kExp, Add(g, at(column), Alu(g, Op::kNeg, most)));
  };
  const UOp* const sum = Fold(g, Op::kAdd, exponential(m), {m});
  const UOp* const label = LoadAt(g, 2, DType::kI64, rows, row);
  const UOp* const hot = Alu(g, Op::kCmpEq, label, j);
  const auto number = [&](double value) { return ConstFloat(g, DType::kF32, value); };
  const UOp* const gradient =
      Add(g, Alu(g, Op::kFDiv, exponential(j), sum), Where(g, hot, number(-1), number(0)));
  return Sink(g, {StoreAt(g, 0, elements, RowMajor(g, {row, j}, {rows, r.length}),
                          Cast(g, gradient, r.dtype)),
                  StoreAt(g, 1, rows, row, sum)});
}

constexpr int64_t kApart = 3, kInPlace = 0;

// What the kernel makes of `start`, buffers of the one in place, with memory of its own.
Buffers Wanted(const Rows& r, const Buffers& start) {
  Graph g;
  Buffers apart = start;
  apart.push_back(start[0]);
  EXPECT_EQ(WalkKernel(LossGradient(g, r, kApart), apart), absl::OkStatus());
  apart.pop_back();
  return apart;
}

Buffers Start(const UOp* sink, const Rows& r) {
  Buffers start = RandomBuffers(sink, 1);
  for (int64_t i = 0; i < r.outer * r.rows; ++i)
    StoreInt(DType::kI64, i * 7 % r.length, start[2].data() + i * ByteWidth(DType::kI64));
  return start;
}

codegen::LoopNest Analyzed(const UOp* sink) { return *codegen::AnalyzeKernel(sink); }

TEST(RowsInPlace, TheKernelSaysSo) {
  Graph g;
  const Rows r = {3, 5, 40};
  EXPECT_EQ(codegen::RowsInPlace(Analyzed(LossGradient(g, r, kInPlace))), RangeSet{1})
      << "merged rows";
  EXPECT_EQ(codegen::RowsInPlace(Analyzed(LossGradient(g, r, kApart))), std::nullopt);
  // Element by element.
  const UOp* const i = test::Range(g, 0, 40);
  const UOp* const x = LoadAt(g, 0, DType::kF32, 40, i);
  EXPECT_EQ(codegen::RowsInPlace(Analyzed(Sink(g, {StoreAt(g, 0, 40, i, Add(g, x, x))}))),
            std::nullopt);
}

struct OptsCase {
  const char* opts;
  bool legal;
};

void ExpectLegal(const OptsCase& c, const Target& target) {
  SCOPED_TRACE(c.opts);
  Graph g;
  const auto opts = codegen::ParseOpts(c.opts);
  ASSERT_TRUE(opts.ok()) << opts.status();
  const Rows r = {1, 40, 512};
  EXPECT_TRUE(codegen::ApplyOpts(Analyzed(LossGradient(g, r, kApart)), *opts, target).ok())
      << "else the case says nothing";
  const auto planned = codegen::ApplyOpts(Analyzed(LossGradient(g, r, kInPlace)), *opts, target);
  EXPECT_EQ(planned.ok(), c.legal) << planned.status();
  EXPECT_EQ(absl::IsInvalidArgument(planned.status()), !c.legal) << planned.status();
}

// Axes: 0 the rows, 1 along them, 2 and 3 of the reductions.
TEST(RowsInPlace, OptsOfAProcessor) {
  for (const OptsCase& c : {OptsCase{"", true},
                            {"THREAD:0:1", true},
                            {"VECTOR:1:8 UPCAST:0:4 THREAD:0:1", true},
                            {"VECTOR:2:8 UNROLL:2:2 GROUP:2:2", true},
                            {"BLOCK:0:8 THREAD:0:1", true},
                            {"THREAD:0:2", false},
                            {"SWAP:0:1", false},
                            {"BLOCK:1:64", false}})
    ExpectLegal(c, TestTarget());
}

TEST(RowsInPlace, OptsOfAGpu) {
  const Target target = CudaTarget("sm_90", 132);
  for (const OptsCase& c :
       {OptsCase{"LANE:1:32 WARP:1:4 SHARE:2:128 SHARE:3:128 GRID:0:1", true},
        {"VECTOR:1:2 LANE:1:32 WARP:1:2 VECTOR:2:2 SHARE:2:64 VECTOR:3:2 SHARE:3:64 GRID:0:1",
         true},
        {"LANE:0:32 GRID:0:1", true},                         // a row is one thread's
        {"LANE:1:32 WARP:1:4 GRID:0:1", false},               // all compute the sums
        {"LANE:1:32 WARP:1:4 SHARE:2:128 GRID:0:1", false},   // or one of them
        {"LANE:1:32 SHARE:2:32 SHARE:3:32 GRID:0:1", false},  // no barrier in a warp
        {"LANE:1:32 WARP:1:4 SHARE:2:128 SHARE:3:128 GRID:0:2", false}})
    ExpectLegal(c, target);
}

// Long rows are computed as with memory of their own. A short one, which one warp would have, is
// divided among two: their threads wait for each other.
TEST(RowsInPlace, TheChoiceStaysTheSame) {
  const auto chosen = [](const Rows& r, int64_t x, const Target& target) {
    Graph g;
    return codegen::OptsToString(codegen::HeuristicOpts(Analyzed(LossGradient(g, r, x)), target));
  };
  for (const Target& target : {TestTarget(), CudaTarget("sm_90a", 132), AmdTarget("gfx942", 304)}) {
    for (const Rows& r : {Rows{8, 1024, 50257}, Rows{1, 512, 4096}}) {
      EXPECT_EQ(chosen(r, kInPlace, target), chosen(r, kApart, target)) << target.arch;
      EXPECT_NE(chosen(r, kInPlace, target), "") << target.arch;
    }
    EXPECT_NE(chosen({1, 4096, 1000}, kInPlace, target), "") << target.arch;
    EXPECT_EQ(chosen({8, 1024, 50257, DType::kBF16}, kInPlace, target),
              chosen({8, 1024, 50257, DType::kBF16}, kApart, target));
  }
}

constexpr Rows kRows[] = {
    {1, 1, 300},
    {1, 40, 512},
    {3, 5, 1000},
    {1, 70, 33},
    {2, 8, 2048},
    {1, 130, 257},
    {1, 6, 5000},
    {4, 1, 64},
    // Logits of mixed precision, and the gradient over them.
    {1, 40, 512, DType::kBF16},
    {3, 5, 1000, DType::kBF16},
    {1, 70, 33, DType::kBF16},
    {1, 6, 5001, DType::kBF16},
};

TEST(RowsInPlace, ProcessorsComputeTheSame) {
  for (const Rows& r : kRows) {
    SCOPED_TRACE(testing::Message() << r.outer << " x " << r.rows << " x " << r.length);
    Graph g;
    const UOp* const sink = LossGradient(g, r, kInPlace);
    const Buffers start = Start(sink, r), want = Wanted(r, start);
    std::vector<CompileOptions> all = {{.no_opt = true}, {}, kOldOptions[0], kOldOptions[1]};
    std::mt19937 random(1);
    for (int i = 0; i < 3; ++i) all.push_back({.opts = RandomOpts(sink, HostTarget(), random)});
    for (const CompileOptions& options : all) {
      const auto compiled = CompileKernel(sink, options);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const auto loaded = LoadedKernel::Load(*compiled);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      for (const int pieces : {1, 3}) {
        Buffers got = start;
        (*loaded)->RunGuarded(got, pieces);
        ExpectClose(sink, got, want, Tolerance(r));
        ASSERT_FALSE(HasFailure()) << "cpu \"" << options.cpu << "\" no_opt " << options.no_opt
                                   << (options.opts ? codegen::OptsToString(*options.opts) : "");
      }
    }
  }
}

void ExpectNoRace(const UOp* sink, const absl::StatusOr<program::Program>& program,
                  const Buffers& start, const Buffers& want, const Rows& r) {
  ASSERT_TRUE(program.ok()) << program.status();
  Buffers got = start;
  const program::RunReport report =
      program::Interpret(*program, got, {}, {.seed = 1, .steps_max = 50'000'000});
  ASSERT_TRUE(report.ok()) << report.message << "\n" << ToString(*program);
  ExpectClose(sink, got, want, Tolerance(r));
}

TEST(RowsInPlace, ThreadsOfABlockWaitForEachOther) {
  const Target target = CudaTarget("sm_90", 132);
  for (const Rows& r : kRows) {
    SCOPED_TRACE(testing::Message() << r.outer << " x " << r.rows << " x " << r.length);
    Graph g;
    const UOp* const sink = LossGradient(g, r, kInPlace);
    const Buffers start = Start(sink, r), want = Wanted(r, start);
    // What is chosen, and plain threads.
    const codegen::LoopNest kernel = Analyzed(sink);
    const std::vector<codegen::Opt> opts = codegen::HeuristicOpts(kernel, target);
    SCOPED_TRACE(codegen::OptsToString(opts));
    if (!opts.empty()) {
      const auto planned = codegen::ApplyOpts(Analyzed(sink), opts, target);
      ASSERT_TRUE(planned.ok()) << planned.status();
      ExpectNoRace(sink, program::ExpandPlan(planned->kernel, planned->plan), start, want, r);
    }
    ExpectNoRace(sink, program::ExpandThreads(kernel, program::MapToThreads(kernel, 128)), start,
                 want, r);
    for (const bool no_opt : {false, true}) {
      const auto compiled = CompileKernel(sink, {.target = target, .no_opt = no_opt});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      Buffers got = start;
      const absl::Status ran = RunOnPtxMachine(*compiled, got);
      ASSERT_TRUE(ran.ok()) << ran << "\n" << compiled->object;
      ExpectClose(sink, got, want, Tolerance(r));
    }
    ASSERT_FALSE(HasFailure());
  }
}

// The gradient of a cross-entropy, by doubles and row by row: long rows would take a walk too long.
Buffers LongWanted(const Rows& r, const Buffers& start) {
  Buffers out = start;
  const int width = ByteWidth(r.dtype);
  for (int64_t row = 0; row < r.outer * r.rows; ++row) {
    char* const x = out[0].data() + row * r.length * width;
    double most = -INFINITY, sum = 0;
    const auto at = [&](int64_t j) { return LoadFloat(r.dtype, x + j * width); };
    for (int64_t j = 0; j < r.length; ++j) most = std::max(most, at(j));
    for (int64_t j = 0; j < r.length; ++j) sum += std::exp(at(j) - most);
    const int64_t label = LoadInt(DType::kI64, start[2].data() + row * ByteWidth(DType::kI64));
    for (int64_t j = 0; j < r.length; ++j) {
      const double value = std::exp(at(j) - most) / sum;
      StoreFloat(r.dtype, RoundTo(r.dtype, value - (label == j ? 1 : 0)), x + j * width);
    }
    StoreFloat(DType::kF32, RoundTo(DType::kF32, sum), out[1].data() + row * 4);
  }
  return out;
}

// By one block, and by the blocks of a cluster: no thread stores over what another one still reads,
// and each reads its part of a row once.
TEST(RowsInPlace, LongRowsAreReadOnce) {
  for (const Rows& r : {Rows{1, 2, 8192},
                        {1, 2, 20'003},
                        {1, 2, 32'768, DType::kBF16},
                        {1, 3, 50'257},
                        {1, 2, 50'304, DType::kBF16}}) {
    SCOPED_TRACE(testing::Message() << r.rows << " x " << r.length << " " << Name(r.dtype));
    const Target target = CudaTarget("sm_90a", 132);
    Graph g;
    const UOp* const sink = LossGradient(g, r, kInPlace);
    const Buffers start = Start(sink, r), want = LongWanted(r, start);
    const codegen::LoopNest kernel = Analyzed(sink);
    const std::vector<codegen::Opt> opts = codegen::HeuristicOpts(kernel, target);
    SCOPED_TRACE(codegen::OptsToString(opts));
    const auto planned = codegen::ApplyOpts(Analyzed(sink), opts, target);
    ASSERT_TRUE(planned.ok()) << planned.status();
    EXPECT_EQ(codegen::KeptRowsOf(planned->kernel, planned->plan).size(), 1u);
    ExpectNoRace(sink, program::ExpandPlan(planned->kernel, planned->plan), start, want, r);
    const auto compiled = CompileKernel(sink, {.target = target});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    Buffers got = start;
    MachineCounts counts;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
    ASSERT_TRUE(ran.ok()) << ran;
    ExpectClose(sink, got, want, Tolerance(r));
    ASSERT_FALSE(HasFailure());
    constexpr uint64_t kSectorBytes = 32;
    const auto bytes = static_cast<uint64_t>(2 * r.rows * r.length * ByteWidth(r.dtype));
    // Labels and sums come on top.
    EXPECT_LE(static_cast<double>(counts.global_sectors),
              1.05 * static_cast<double>(bytes / kSectorBytes));
    if (const std::string ptxas = FindPtxas(); !ptxas.empty()) {
      const auto assembled = AssembleKernel(ptxas, compiled->object, "sm_90a");
      ASSERT_TRUE(assembled.ok()) << assembled.status();
      EXPECT_EQ(assembled->spill_bytes + assembled->stack_bytes, 0);
    }
  }
}

// x + y - max x over x, where rows of y are longer: the loop of what is stored may be aligned for
// either, and that of the reduction for x.
TEST(RowsInPlace, RowsAlignedForAnotherArray) {
  constexpr int64_t kCount = 3, kLength = 8193, kOther = 8196;
  const Target target = CudaTarget("sm_90a", 132);
  for (const bool y_first : {false, true}) {
    SCOPED_TRACE(y_first);
    Graph g;
    const UOp *row = test::Range(g, 0, kCount), *j = test::Range(g, 1, kLength),
              *k = ReduceRange(g, 2, kLength);
    const auto x = [&](const UOp* column) {
      return LoadAt(g, 0, DType::kF32, kCount * kLength,
                    RowMajor(g, {row, column}, {kCount, kLength}));
    };
    const UOp* const y =
        LoadAt(g, 1, DType::kF32, kCount * kOther, RowMajor(g, {row, j}, {kCount, kOther}));
    const UOp* const most = Fold(g, Op::kMax, x(k), {k});
    const UOp* const sum = y_first ? Add(g, y, x(j)) : Add(g, x(j), y);
    const UOp* const sink =
        Sink(g, {StoreAt(g, 0, kCount * kLength, RowMajor(g, {row, j}, {kCount, kLength}),
                         Add(g, sum, Alu(g, Op::kNeg, most)))});
    for (const char* opts :
         {"LANE:1:32 WARP:1:32 ALIGN:1:8 SHARE:2:1024 ALIGN:2:8 UNROLL:2:9 UPCAST:1:9 GRID:0:1",
          ""}) {
      const auto compiled = CompileKernel(
          sink, {.target = target,
                 .opts = *opts == 0 ? std::nullopt : std::optional(*codegen::ParseOpts(opts))});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const Buffers start = RandomBuffers(sink, 1);
      Buffers got = start;
      const absl::Status ran = RunOnPtxMachine(*compiled, got);
      ASSERT_TRUE(ran.ok()) << ran;
      const auto number = [](const Buffers& buffers, size_t slot, int64_t at) {
        return LoadFloat(DType::kF32, buffers[slot].data() + at * 4);
      };
      for (int64_t r = 0; r < kCount; ++r) {
        double max = -INFINITY;
        for (int64_t c = 0; c < kLength; ++c)
          max = std::max(max, number(start, 0, r * kLength + c));
        for (int64_t c = 0; c < kLength; ++c)
          ASSERT_EQ(number(got, 0, r * kLength + c),
                    number(start, 0, r * kLength + c) + number(start, 1, r * kOther + c) - max)
              << opts << " row " << r << " column " << c;
      }
    }
  }
}

// What threads have of it in the one reduction and in the other is not the same, or comes in steps.
TEST(RowsInPlace, OtherRowsAreNotKept) {
  const Target target = CudaTarget("sm_90", 132);
  for (const auto& [opts, kept] :
       {std::pair<const char*, size_t>{"LANE:1:32 WARP:1:4 UPCAST:1:4 SHARE:2:128 UNROLL:2:4 "
                                       "SHARE:3:128 UNROLL:3:4 GRID:0:1",
                                       1},
        {"LANE:1:32 WARP:1:4 SHARE:2:128 SHARE:3:128 GRID:0:1", 0},
        {"LANE:1:32 WARP:1:4 UPCAST:1:4 SHARE:2:128 UNROLL:2:4 "
         "VECTOR:3:4 SHARE:3:128 GRID:0:1",
         0}}) {
    Graph g;
    const Rows r = {1, 40, 512};
    const auto planned = codegen::ApplyOpts(Analyzed(LossGradient(g, r, kInPlace)),
                                            *codegen::ParseOpts(opts), target);
    ASSERT_TRUE(planned.ok()) << opts << planned.status();
    EXPECT_EQ(codegen::KeptRowsOf(planned->kernel, planned->plan).size(), kept) << opts;
  }
}

// A loop may end before its first step: of loops that end apart, one would store what another one
// never read.
TEST(RowsInPlace, RowsThatEndAtAVar_AreKeptWhereAllLoopsEndThere) {
  struct Ends {
    bool ends, sums_end_apart;
    size_t kept;
  };
  for (const auto& [ends, sums_end_apart, kept] :
       {Ends{false, false, 1}, Ends{true, false, 1}, Ends{true, true, 0}, Ends{false, true, 0}}) {
    Graph g;
    const auto planned = codegen::ApplyOpts(
        Analyzed(LossGradient(g,
                              {.outer = 1,
                               .rows = 40,
                               .length = 512,
                               .ends = ends,
                               .sums_end_apart = sums_end_apart},
                              kInPlace)),
        *codegen::ParseOpts("LANE:1:32 WARP:1:4 UPCAST:1:4 SHARE:2:128 UNROLL:2:4 SHARE:3:128 "
                            "UNROLL:3:4 GRID:0:1"),
        CudaTarget("sm_90", 132));
    ASSERT_TRUE(planned.ok()) << planned.status();
    EXPECT_EQ(codegen::KeptRowsOf(planned->kernel, planned->plan).size(), kept);
  }
}

TEST(RowsInPlace, RandomOptsOfAGpuComputeTheSame) {
  const Target target = CudaTarget("sm_90", 132);
  const Rows r = {1, 9, 260};
  Graph g;
  const UOp* const sink = LossGradient(g, r, kInPlace);
  const Buffers start = Start(sink, r), want = Wanted(r, start);
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    const std::vector<codegen::Opt> opts = RandomThreadOpts(sink, target, random);
    SCOPED_TRACE(codegen::OptsToString(opts));
    const auto planned = codegen::ApplyOpts(Analyzed(sink), opts, target);
    ASSERT_TRUE(planned.ok()) << planned.status();
    ExpectNoRace(sink, program::ExpandPlan(planned->kernel, planned->plan), start, want, r);
    ASSERT_FALSE(HasFailure());
  }
}

// A thread for each element, each with the sums of its row: refused before anything runs.
TEST(RowsInPlace, PlainThreadsMayNotDivideARow) {
  Graph g;
  const codegen::LoopNest kernel = Analyzed(LossGradient(g, {1, 40, 512}, kInPlace));
  EXPECT_TRUE(absl::IsInvalidArgument(
      program::ExpandThreads(kernel, {.threads = 64, .block_ranges = 0}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      program::ExpandThreads(kernel, {.threads = 64, .block_ranges = 1, .stride = true}).status()));
}

}  // namespace
}  // namespace outboard::test
