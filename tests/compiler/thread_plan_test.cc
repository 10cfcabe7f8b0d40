// Opts of devices that run blocks of threads (compiler/optimize/opt.h): plans by hand and random
// ones, as programs that are interpreted after every pass and as PTX on the PTX machine, against a
// walk of the kernel; and what the machine counts of those that are chosen.
// OUTBOARD_KERNELS=n: so many random kernels, from number OUTBOARD_FROM on; OUTBOARD_SEED=n: kernel
// n alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/kernel/decompose_math_f64.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "compiler/program/spec.h"
#include "compiler/proof/in_range.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "compiler/search/neighbours.h"
#include "tests/bench/gpu_sector_figures.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_random.h"
#include "tests/compiler/kernel_random_opts.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using codegen::Opt;

constexpr int kMultiprocessors = 132;
constexpr double kTolerance = 2e-3;

// Runs of the interpreter, and those that its limit of steps cut off.
struct Runs {
  int all = 0, cut = 0;
};
Runs& Interpreted() {
  static Runs runs;
  return runs;
}

// Interprets the kernel after each pass, runs it on the machine, and compares.
void ExpectRuns(const UOp* sink, const std::vector<Opt>& opts, const Target& target, uint32_t seed,
                bool each_pass) {
  SCOPED_TRACE(codegen::OptsToString(opts));
  Graph guards;
  const UOp* const guarded =
      codegen::DecomposeTranscendentalsOfF64(guards, *proof::GuardUnproved(guards, sink));
  const Buffers start = RandomBuffers(sink, seed);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  const auto planned = codegen::ApplyOpts(*codegen::AnalyzeKernel(guarded), opts, target);
  ASSERT_TRUE(planned.ok()) << planned.status();
  std::vector<program::PassResult> passes;
  const auto program = program::ExpandPlan(planned->kernel, planned->plan, &passes);
  ASSERT_TRUE(program.ok()) << program.status() << PlanToString(planned->kernel, planned->plan)
                            << (passes.empty() ? "" : ToString(passes.back().program));
  if (!each_pass && !passes.empty()) passes.erase(passes.begin(), passes.end() - 1);
  passes.push_back({"last", *program});
  for (const program::PassResult& pass : passes) {
    Buffers got = start;
    const program::RunReport report =
        program::Interpret(pass.program, got, {}, {.seed = seed, .steps_max = 50'000'000});
    ++Interpreted().all;
    if (report.fault == program::Fault::kTooLong) {
      ++Interpreted().cut;
      continue;
    }
    ASSERT_TRUE(report.ok()) << "after " << pass.pass << ": " << report.message << "\n"
                             << PlanToString(planned->kernel, planned->plan)
                             << ToString(pass.program);
    ExpectClose(sink, got, want, kTolerance);
    if (::testing::Test::HasFailure())
      FAIL() << "after " << pass.pass << "\n"
             << PlanToString(planned->kernel, planned->plan) << ToString(pass.program);
  }
  const auto renderer = *render::MakePtxRenderer(target);
  const auto compiled = renderer->Render(*program, "k");
  ASSERT_TRUE(compiled.ok()) << compiled.status() << ToString(*program);
  EXPECT_FALSE(absl::StrContains(compiled->object, ".local")) << compiled->object;
  Buffers got = start;
  const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, seed);
  ASSERT_TRUE(ran.ok()) << ran << "\n" << ToString(*program) << compiled->object;
  ExpectClose(sink, got, want, kTolerance);
  if (::testing::Test::HasFailure()) FAIL() << ToString(*program) << compiled->object;
}

Target SmallBlocks(const std::string& arch = "sm_90") {
  Target target = CudaTarget(arch, kMultiprocessors);
  target.block_threads = 128;
  return target;
}

// ---- plans by hand

struct PlanCase {
  const char* what;
  const UOp* (*kernel)(Graph& g);
  const char* opts;
};

const UOp* RowSums(Graph& g) {
  const UOp *i = test::Range(g, 0, 37), *k = ReduceRange(g, 1, 300);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 37 * 300, RowMajor(g, {i, k}, {37, 300}));
  return Sink(g, {StoreAt(g, 0, 37, i, Fold(g, Op::kAdd, x, {k}))});
}
const UOp* ColumnSums(Graph& g) {
  const UOp *i = test::Range(g, 0, 70), *k = ReduceRange(g, 1, 90);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 90 * 70, RowMajor(g, {k, i}, {90, 70}));
  return Sink(g, {StoreAt(g, 0, 70, i, Fold(g, Op::kMax, x, {k}))});
}
// A row less its mean, and the mean itself.
const UOp* Centred(Graph& g) {
  const UOp *i = test::Range(g, 0, 9), *j = test::Range(g, 1, 200), *k = ReduceRange(g, 2, 200);
  const auto x = [&](const UOp* column) {
    return LoadAt(g, 2, DType::kF32, 1800, RowMajor(g, {i, column}, {9, 200}));
  };
  const UOp* const mean =
      Mul(g, Fold(g, Op::kAdd, x(k), {k}), ConstFloat(g, DType::kF32, 1.0 / 200));
  return Sink(
      g, {StoreAt(g, 0, 1800, RowMajor(g, {i, j}, {9, 200}), Add(g, x(j), Alu(g, Op::kNeg, mean))),
          StoreAt(g, 1, 9, i, mean)});
}
const UOp* Halves(Graph& g) {
  const UOp* const i = test::Range(g, 0, 1000);
  return Sink(g, {StoreAt(g, 0, 1000, i, Alu(g, Op::kNeg, LoadAt(g, 1, DType::kF16, 1000, i)))});
}
const UOp* Product(Graph& g) { return MatMul(g, 40, 36, 27); }
// Rows of 37 results begin anywhere in a sector.
const UOp* OddProduct(Graph& g) { return MatMul(g, 4, 37, 16); }
// A sum of each row, times a product of that row: the row is read by both.
const UOp* SumTimesProduct(Graph& g) {
  const UOp *i = test::Range(g, 0, 16), *j = test::Range(g, 1, 32);
  const UOp *a = ReduceRange(g, 2, 64), *b = ReduceRange(g, 3, 64);
  const auto x = [&](const UOp* k) {
    return LoadAt(g, 1, DType::kF32, 16 * 64, RowMajor(g, {i, k}, {16, 64}));
  };
  const UOp* const y = LoadAt(g, 2, DType::kF32, 64 * 32, RowMajor(g, {b, j}, {64, 32}));
  return Sink(
      g, {StoreAt(g, 0, 16 * 32, RowMajor(g, {i, j}, {16, 32}),
                  Mul(g, Fold(g, Op::kAdd, x(a), {a}), Fold(g, Op::kAdd, Mul(g, x(b), y), {b})))});
}
// y[b, n] = sum of x[n + k] * w[b, k]: what a block reads of x lies along its results.
const UOp* Windows(Graph& g) {
  const UOp *b = test::Range(g, 0, 3), *n = test::Range(g, 1, 257), *k = ReduceRange(g, 2, 64);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 320, Add(g, n, k));
  const UOp* const w = LoadAt(g, 2, DType::kF32, 3 * 64, RowMajor(g, {b, k}, {3, 64}));
  return Sink(g, {StoreAt(g, 0, 3 * 257, RowMajor(g, {b, n}, {3, 257}),
                          Fold(g, Op::kAdd, Mul(g, x, w), {k}))});
}
// Rows of the second operand lie along the reduction.
const UOp* ProductOfRows(Graph& g) {
  const UOp *m = test::Range(g, 0, 33), *n = test::Range(g, 1, 50), *k = ReduceRange(g, 2, 24);
  const UOp* const a = LoadAt(g, 1, DType::kF32, 33 * 24, RowMajor(g, {m, k}, {33, 24}));
  const UOp* const b = LoadAt(g, 2, DType::kF32, 50 * 24, RowMajor(g, {n, k}, {50, 24}));
  return Sink(g, {StoreAt(g, 0, 33 * 50, RowMajor(g, {m, n}, {33, 50}),
                          Fold(g, Op::kAdd, Mul(g, a, b), {k}))});
}
const UOp* Update(Graph& g) {
  const UOp *i = test::Range(g, 0, 50), *k = ReduceRange(g, 1, 64);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 50 * 64, RowMajor(g, {i, k}, {50, 64}));
  return Sink(g, {StoreAt(g, 0, 50, i,
                          Add(g, LoadAt(g, 0, DType::kF32, 50, i), Fold(g, Op::kAdd, x, {k})))});
}
const UOp* SumsOfBytes(Graph& g) {
  const UOp *i = test::Range(g, 0, 5), *k = ReduceRange(g, 1, 333);
  const UOp* const x = LoadAt(g, 1, DType::kU8, 5 * 333, RowMajor(g, {i, k}, {5, 333}));
  const UOp* const wide = Cast(g, x, DType::kF64);
  return Sink(g, {StoreAt(g, 0, 5, i, Fold(g, Op::kAdd, wide, {k})),
                  StoreAt(g, 2, 5, i, Fold(g, Op::kMul, Cast(g, x, DType::kI32), {k}))});
}

// Numbers in blocks of 34 bytes, 32 of them behind two that say more.
const UOp* PackedSums(Graph& g) {
  constexpr int64_t kRows = 13, kTerms = 128, kRowBytes = kTerms / 32 * 34;
  const UOp *i = test::Range(g, 0, kRows), *k = ReduceRange(g, 1, kTerms);
  const UOp* const block = Add(g, Mul(g, i, ConstIndex(g, kRowBytes)),
                               Mul(g, Alu(g, Op::kIDiv, k, ConstIndex(g, 32)), ConstIndex(g, 34)));
  const auto byte = [&](const UOp* at) {
    return Cast(g, LoadAt(g, 1, DType::kU8, kRows * kRowBytes, at), DType::kF32);
  };
  const UOp* const number =
      Add(g, Add(g, block, Alu(g, Op::kMod, k, ConstIndex(g, 32))), ConstIndex(g, 2));
  const UOp* const scale = Add(g, byte(block), byte(Add(g, block, ConstIndex(g, 1))));
  return Sink(g, {StoreAt(g, 0, kRows, i, Fold(g, Op::kAdd, Mul(g, byte(number), scale), {k}))});
}

constexpr PlanCase kPlans[] = {
    {"a vector a thread", Halves, "VECTOR:0:4 LANE:0:32 GRID:0:1"},
    {"several vectors, the last block is cut", Halves,
     "VECTOR:0:4 LANE:0:32 WARP:0:2 UPCAST:0:3 GRID:0:1"},
    {"consecutive values and repeats", Halves, "UPCAST:0:2 LANE:0:16 UPCAST:0:3 GRID:0:1"},
    {"steps of one block", Halves, "LANE:0:32"},
    {"a row by a warp", RowSums, "VECTOR:1:4 SHARE:1:32 GRID:0:1"},
    {"a row by a block, cut", RowSums, "SHARE:1:128 GRID:0:1"},
    {"several rows by a warp", RowSums, "SHARE:1:8 LANE:0:4 WARP:0:2 GRID:0:1"},
    {"several rows of a thread", RowSums, "SHARE:1:64 UPCAST:0:2 UNROLL:1:2 GROUP:1:2 GRID:0:1"},
    {"columns by lanes, the reduction by warps", ColumnSums,
     "LANE:0:32 SHARE:1:4 UNROLL:1:3 GRID:0:1"},
    {"fewer columns than a warp has threads", ColumnSums, "LANE:0:8 SHARE:1:16 GRID:0:1"},
    {"a row is read once", Centred, "VECTOR:1:4 LANE:1:32 WARP:1:2 VECTOR:2:4 SHARE:2:64 GRID:0:1"},
    {"a row in several steps", Centred, "LANE:1:32 SHARE:2:32 UNROLL:2:2 GRID:0:1"},
    {"two rows of a block", Centred, "LANE:1:32 WARP:0:2 SHARE:2:32 GRID:0:1"},
    {"all threads compute the same mean", Centred, "LANE:1:32 GRID:0:2"},
    {"an update in place", Update, "VECTOR:1:2 SHARE:1:16 LANE:0:2 WARP:0:2 GRID:0:1"},
    {"two types", SumsOfBytes, "SHARE:1:64 GRID:0:1"},
    {"a tile of a product", Product,
     "VECTOR:1:4 LANE:1:4 LANE:0:8 UPCAST:0:2 UNROLL:2:4 LOCAL:0:0 LOCAL:1:0 GRID:0:2"},
    {"a product of many tiles", Product,
     "VECTOR:1:2 LANE:1:8 UPCAST:1:2 UPCAST:0:2 LANE:0:4 WARP:0:2 UNROLL:2:8 LOCAL:0:0 LOCAL:1:0 "
     "GRID:0:2"},
    {"one operand is copied", Product, "LANE:1:32 UPCAST:0:4 UNROLL:2:5 LOCAL:1:0 GRID:0:2"},
    {"a packed row is copied whole", PackedSums, "VECTOR:1:4 SHARE:1:32 GRID:0:1 LOCAL:0:0"},
    {"several packed rows, the last ones cut", PackedSums,
     "SHARE:1:16 LANE:0:2 WARP:0:2 GRID:0:1 LOCAL:0:0"},
    {"packed rows in more pieces than threads", PackedSums,
     "SHARE:1:4 UPCAST:0:4 GRID:0:1 LOCAL:1:0"},
    {"columns of all rows are copied", ColumnSums, "LANE:0:8 SHARE:1:4 GRID:0:1 LOCAL:0:0"},
    {"other rows are copied whole", RowSums, "VECTOR:1:4 SHARE:1:32 GRID:0:1 LOCAL:0:0"},
    {"windows are copied", Windows, "LANE:1:8 SHARE:2:16 LOCAL:0:0 GRID:0:2"},
    {"rows are copied that do not lie along the aligned axis", Windows,
     "LANE:1:8 SHARE:2:16 ALIGN:1:8 LOCAL:1:0 GRID:0:2"},
    {"a product of rows", ProductOfRows,
     "UPCAST:1:2 LANE:1:8 UPCAST:0:4 LANE:0:4 WARP:0:2 UNROLL:2:8 LOCAL:0:0 LOCAL:1:0 GRID:0:2"},
};

TEST(ThreadPlan, PlansByHand_RunAsTheWalk) {
  uint32_t seed = 0;
  for (const PlanCase& c : kPlans) {
    SCOPED_TRACE(c.what);
    Graph g;
    ExpectRuns(c.kernel(g), *codegen::ParseOpts(c.opts), SmallBlocks(), ++seed, true);
    if (HasFatalFailure()) return;
  }
}

// Four numbers of a block lie side by side, since four divide its 32; the scale is one for all.
TEST(ThreadPlan, NumbersOfAPackedBlock_AreReadTogether) {
  for (const char* const opts : {"VECTOR:1:4 SHARE:1:32 GRID:0:1",
                                 "VECTOR:1:4 SHARE:1:32 GRID:0:1 LOCAL:0:0"}) {
    SCOPED_TRACE(opts);
    Graph g;
    const auto planned = codegen::ApplyOpts(*codegen::AnalyzeKernel(PackedSums(g)),
                                            *codegen::ParseOpts(opts), SmallBlocks());
    ASSERT_TRUE(planned.ok()) << planned.status();
    const program::Program program = *program::ExpandPlan(planned->kernel, planned->plan);
    int numbers = 0;
    for (const program::Instruction& i : program.code) {
      if (i.code != program::Code::kLoad || i.dtype != DType::kU8) continue;
      EXPECT_EQ(program.code[i.src[1]].lanes, 1) << ToString(program);
      EXPECT_TRUE(i.lanes == 1 || i.lanes == 4) << ToString(program);
      numbers += i.lanes == 4;
    }
    EXPECT_EQ(numbers, 1) << ToString(program);
  }
}

struct IllegalCase {
  const UOp* (*kernel)(Graph& g);
  const char* opts;
  absl::StatusCode code;
  const char* says;  // of the message
};
constexpr IllegalCase kIllegal[] = {
    {Halves, "VECTOR:0:16 LANE:0:32", absl::StatusCode::kInvalidArgument, "up to 8"},
    {Halves, "LANE:0:64", absl::StatusCode::kInvalidArgument, "a warp has 32"},
    {Halves, "LANE:0:24", absl::StatusCode::kInvalidArgument, "power of two"},
    {Halves, "WARP:0:2", absl::StatusCode::kInvalidArgument, "no whole warps"},
    {Halves, "LANE:0:32 WARP:0:8", absl::StatusCode::kInvalidArgument, "at most 128 threads"},
    {Halves, "UPCAST:0:8 LANE:0:32 WARP:0:4 UPCAST:0:2", absl::StatusCode::kInvalidArgument,
     "beyond the extent"},
    {Halves, "THREAD:0:1", absl::StatusCode::kInvalidArgument, "blocks of threads"},
    {Halves, "MMA:0:1", absl::StatusCode::kInvalidArgument, "stands alone"},
    {Halves, "WGMMA:0:1", absl::StatusCode::kInvalidArgument, "stands alone"},
    {ColumnSums, "LANE:0:8 SHARE:1:4 WARP:0:2", absl::StatusCode::kOk, ""},
    {Centred, "LANE:1:32 SHARE:2:48", absl::StatusCode::kInvalidArgument, "power of two"},
    {Centred, "SHARE:2:16 LANE:1:32", absl::StatusCode::kInvalidArgument, "a warp has 32"},
    {Centred, "SHARE:2:8 LANE:1:4", absl::StatusCode::kInvalidArgument, "divided among 8 of 32"},
    {RowSums, "LOCAL:0:0 SHARE:1:8", absl::StatusCode::kInvalidArgument, "are not copied"},
    {PackedSums, "SHARE:1:32 LOCAL:0:0", absl::StatusCode::kInvalidArgument, "one block"},
    {PackedSums, "SHARE:1:32 GRID:0:1 LOCAL:0:0 LOCAL:1:0", absl::StatusCode::kInvalidArgument,
     "copied already"},
    {SumsOfBytes, "SHARE:1:64 GRID:0:1 LOCAL:0:0", absl::StatusCode::kInvalidArgument,
     "not aligned"},
    {OddProduct, "LANE:1:32 ALIGN:1:8 UPCAST:1:2 GRID:0:1", absl::StatusCode::kOk, ""},
    {OddProduct, "LANE:1:32 ALIGN:1:8 UPCAST:1:2 LOCAL:0:0 LOCAL:1:0 GRID:0:1",
     absl::StatusCode::kInvalidArgument, "along an aligned axis"},
    {Windows, "LANE:1:8 SHARE:2:16 LOCAL:0:0 GRID:0:2", absl::StatusCode::kOk, ""},
    {Windows, "LANE:1:8 SHARE:2:16 ALIGN:1:8 GRID:0:2", absl::StatusCode::kOk, ""},
    {Windows, "LANE:1:8 SHARE:2:16 ALIGN:1:8 LOCAL:0:0 GRID:0:2",
     absl::StatusCode::kInvalidArgument, "along an aligned axis"},
    {Windows, "LANE:1:8 SHARE:2:16 ALIGN:1:8 GRID:0:2 LOCAL:0:0",
     absl::StatusCode::kInvalidArgument, "along an aligned axis"},
    {SumTimesProduct, "LANE:1:32 WARP:0:4 SHARE:2:32 LOCAL:0:0 GRID:0:1", absl::StatusCode::kOk,
     ""},
    {SumTimesProduct, "LANE:1:32 WARP:0:4 SHARE:2:32 LOCAL:0:0 LOCAL:1:0 LOCAL:2:0 GRID:0:1",
     absl::StatusCode::kInvalidArgument, "once more"},
    {RowSums, "UPCAST:0:37 UNROLL:1:8 GROUP:1:8", absl::StatusCode::kResourceExhausted,
     "running values of a thread"},
};

TEST(ThreadPlan, OptsThatAreNotLegal_SayWhy) {
  for (const IllegalCase& c : kIllegal) {
    Graph g;
    const absl::Status status = codegen::ApplyOpts(*codegen::AnalyzeKernel(c.kernel(g)),
                                                   *codegen::ParseOpts(c.opts), SmallBlocks())
                                    .status();
    EXPECT_EQ(status.code(), c.code) << c.opts << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.says)) << c.opts << ": " << status;
  }
}

// Many sums of f64 of one kernel take turns in the block's memory.
TEST(ThreadPlan, ManySumsOfF64_FitTheMemoryOfABlock) {
  Graph g;
  const UOp* const k = ReduceRange(g, 0, 5000);
  std::vector<const UOp*> stores;
  for (int64_t n = 0; n < 25; ++n) {
    const UOp* const x = LoadAt(g, 25, DType::kF64, 5000, k);
    stores.push_back(StoreAt(
        g, n, 1, ConstIndex(g, 0),
        Fold(g, Op::kAdd, Mul(g, x, ConstFloat(g, DType::kF64, static_cast<double>(n))), {k})));
  }
  const auto compiled =
      CompileKernel(Sink(g, stores), {.target = CudaTarget("sm_90", kMultiprocessors)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_GE(compiled->threads[0], 128);
}

// ---- divisions

// (factor * thread + counter + constant) / divisor and % divisor, as they are and simplified.
TEST(ThreadPlan, DivisionsOfSums_AreTheQuotientsAndRemainders) {
  constexpr int64_t kThreads = 12;
  int simpler = 0;
  for (const int64_t factor : {1, 2, 3, 4, 6, 8, 12, 32})
    for (const int64_t extent : {2, 3, 4, 5, 8, 9})
      for (const int64_t divisor : {2, 4, 6, 8, 12, 32})
        for (const int64_t constant : {-3, 0, 1, 5, 32}) {
          program::ProgramBuilder b;
          const program::ValueId out = b.Buffer(DType::kI64, 0, 2 * kThreads * extent),
                                 thread = b.Special(program::Grid::kThread, kThreads),
                                 counter = b.Loop(extent);
          const program::ValueId x =
              b.Plus(b.Plus(b.Times(thread, factor), counter), b.Int(constant));
          const program::ValueId at =
              b.Times(b.Plus(b.Times(thread, extent), counter), 2);
          b.Store(out, at, b.Divide(x, divisor));
          b.Store(out, b.Plus(at, b.Int(1)), b.Modulo(x, divisor));
          b.End(counter);
          const program::Program plain = b.Take(1), made = program::SimplifyDivisions(plain);
          simpler += made != plain;
          std::vector<int64_t> want;
          for (int64_t t = 0; t < kThreads; ++t)
            for (int64_t r = 0; r < extent; ++r) {
              const int64_t value = factor * t + r + constant;
              want.push_back(value / divisor);
              want.push_back(value % divisor);
            }
          Buffers got = {std::string(want.size() * sizeof(int64_t), '\0')};
          ASSERT_TRUE(program::Interpret(made, got, {}).ok()) << ToString(made);
          ASSERT_EQ(std::memcmp(got[0].data(), want.data(), got[0].size()), 0)
              << factor << " " << extent << " " << divisor << " " << constant << ToString(made);
        }
  EXPECT_GT(simpler, 300);
}

// ---- SHUFFLE

TEST(ThreadPlan, Shuffle_GivesEachThreadItsPartnersValue) {
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kU8})
    for (const int64_t threads : {8, 64})
      for (const int64_t bit : {1, 4}) {
        program::ProgramBuilder b;
        const program::ValueId out = b.Buffer(dtype, 0, threads), in = b.Buffer(dtype, 1, threads),
                               thread = b.Special(program::Grid::kThread, threads);
        b.Store(out, thread,
                b.Add({.code = program::Code::kShuffle,
                       .dtype = dtype,
                       .src = {b.Load(in, thread)},
                       .imm = {bit, 0, 0}}));
        const program::Program program = b.Take(2);
        ASSERT_EQ(program::CheckProgram(program, "none", program::Phase::kFinal), absl::OkStatus());
        const auto width = static_cast<size_t>(ByteWidth(dtype));
        std::string values;
        for (size_t i = 0; i < static_cast<size_t>(threads) * width; ++i)
          values.push_back(static_cast<char>(i % 61));
        std::string want;
        for (int64_t t = 0; t < threads; ++t)
          want += values.substr(static_cast<size_t>(t ^ bit) * width, width);
        const Buffers start = {std::string(values.size(), '\0'), values};
        Buffers got = start;
        ASSERT_TRUE(program::Interpret(program, got, {}).ok());
        EXPECT_EQ(got[0], want) << Name(dtype);
        const auto renderer = *render::MakePtxRenderer(CudaTarget("sm_80", kMultiprocessors));
        const auto compiled = renderer->Render(program, "k");
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        got = start;
        ASSERT_EQ(RunOnPtxMachine(*compiled, got), absl::OkStatus());
        EXPECT_EQ(got[0], want) << Name(dtype) << compiled->object;
      }
}

TEST(ThreadPlan, AShuffleThatPartOfAWarpMisses_IsRefused) {
  program::ProgramBuilder b;
  const program::ValueId thread = b.Special(program::Grid::kThread, 32);
  const program::ValueId branch = b.If(b.Less(thread, b.Int(3)));
  b.Add({.code = program::Code::kShuffle, .dtype = DType::kI64, .src = {thread}, .imm = {1, 0, 0}});
  b.EndIf(branch);
  EXPECT_TRUE(absl::IsInternal(program::CheckProgram(b.Take(0), "none", program::Phase::kFinal)));
}

// ---- the search

// Of a few kernels, every one of the neighbours can be lowered, and some are run.
TEST(ThreadPlan, NeighboursOfChosenOpts_RunAsTheWalk) {
  size_t neighbours = 0;
  for (const auto kernel : {Halves, RowSums, Centred, Product}) {
    Graph g;
    const UOp* const sink = kernel(g);
    const std::vector<Opt> chosen =
        codegen::HeuristicOpts(*codegen::AnalyzeKernel(sink), SmallBlocks());
    ASSERT_FALSE(chosen.empty());
    const auto all = search::Neighbours(sink, chosen, SmallBlocks());
    ASSERT_GT(all.size(), 3);
    for (size_t i = 0; i < all.size(); ++i) {
      ++neighbours;
      ExpectRuns(sink, all[i].opts, SmallBlocks(), static_cast<uint32_t>(i), false);
      if (HasFatalFailure()) return;
    }
  }
  std::printf("%zu neighbours, %d of %d runs cut off\n", neighbours, Interpreted().cut,
              Interpreted().all);
  EXPECT_LE(Interpreted().cut * 50, Interpreted().all);
}

// ---- random kernels

TEST(ThreadPlan, RandomKernelsWithRandomOpts_RunAsTheWalk) {
  const auto setting = [](const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
  };
  const bool one = std::getenv("OUTBOARD_SEED") != nullptr;
  const int first = setting("OUTBOARD_SEED", setting("OUTBOARD_FROM", 0));
  // Those with random Opts are counted; of some kernels there is nothing to choose.
  const int wanted = one ? 1 : setting("OUTBOARD_KERNELS", 500);
  const int last = first + (one ? 1 : 2 * wanted);
  constexpr int kToldEach = 1000;
  constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90", "sm_90a"};
  int with_threads = 0, chosen = 0, aligned = 0, clusters = 0, kept = 0;
  for (int number = first; number < last && with_threads < wanted; ++number) {
    const auto seed = static_cast<uint32_t>(number);
    SCOPED_TRACE("repeat with OUTBOARD_SEED=" + std::to_string(number));
    Graph g, guards;
    const UOp* const sink = RandomKernel(g, seed);
    const UOp* const guarded =
        codegen::DecomposeTranscendentalsOfF64(guards, *proof::GuardUnproved(guards, sink));
    const Target target = SmallBlocks(kArchs[seed % 4]);
    std::mt19937 random(seed);
    const bool heuristic = seed / 4 % 4 == 0;  // on each of them
    const std::vector<Opt> opts =
        heuristic ? codegen::HeuristicOpts(*codegen::AnalyzeKernel(guarded), target)
                  : RandomThreadOpts(guarded, target, random);
    if (opts.empty()) continue;
    ++(heuristic ? chosen : with_threads);
    const auto has = [&](codegen::OptKind kind) {
      return std::ranges::any_of(opts, [&](const Opt& opt) { return opt.kind == kind; });
    };
    aligned += has(codegen::OptKind::kAlign);
    clusters += has(codegen::OptKind::kCluster);
    kept += has(codegen::OptKind::kKeep);
    ExpectRuns(sink, opts, target, seed, /*each_pass=*/seed % 17 < 2);
    if (HasFatalFailure()) return;
    if (!heuristic && with_threads % kToldEach == 0) {
      std::printf("%d kernels with random Opts ran; the next is %d\n", with_threads, number + 1);
      std::fflush(stdout);
    }
  }
  RecordProperty("random_kernels", with_threads);  // tests/bench/gpu_test_figures.cc
  RecordProperty("chosen_kernels", chosen);
  std::printf(
      "%d kernels with random Opts, %d with those that are chosen, %d aligned, %d by "
      "clusters, %d with kept rows\n",
      with_threads, chosen, aligned, clusters, kept);
  if (one) return;
  EXPECT_EQ(with_threads, wanted);
  EXPECT_GT(aligned * 100, wanted);
  EXPECT_GT(clusters * 100, wanted);
  EXPECT_GT(kept * 100, wanted);
}

// ---- what is chosen

TEST(ThreadPlan, TheMachineCounts_FewSectorsAndNoBankConflicts) {
  const auto figures = bench::GpuSectorFigures();
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_EQ(figures->size(), 8);
  for (const bench::SectorFigure& figure : *figures) {
    std::printf("%s %.3f\n", figure.name.c_str(), figure.value);
    EXPECT_LE(figure.value, 1.05) << figure.name;
    EXPECT_GE(figure.value, 0.999) << figure.name;
  }
}

}  // namespace
}  // namespace outboard::test
