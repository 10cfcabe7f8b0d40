// Expressions whose parts share their parts: 64 doublings are 64 nodes, and 2^64 paths. Graphs come
// from strangers, so no walk may visit a node once for each path to it. One that does never ends,
// nor does its test.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/expr.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/online.h"
#include "compiler/program/program.h"
#include "compiler/rewrite/conjuncts.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/ptx_check.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Grid;
using program::ProgramBuilder;
using program::Space;
using program::ValueId;

constexpr int kDoublings = 64;
// More than the simplifier joins to one sum or condition, which would have no shared parts then.
constexpr int64_t kParts = 40;

absl::Status Compiled(const UOp* sink) {
  for (const CompileOptions& options :
       {CompileOptions{.cpu = "sapphirerapids"}, CompileOptions{.cpu = "skylake-avx512"},
        CompileOptions{.target = CudaTarget("sm_90a", kMultiprocessors)}})
    OB_RETURN_IF_ERROR(CompileKernel(sink, options).status());
  return absl::OkStatus();
}

std::string Zeros(int64_t bytes) { return std::string(static_cast<size_t>(bytes), '\0'); }

// In a loop, so that an address is put together from what is outside and what is inside of it.
TEST(SharedParts, IndicesOfPtx) {
  constexpr int64_t kThreads = 32;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, 2 * kThreads),
                in = b.Buffer(DType::kF32, 1, kThreads),
                zeros = b.Buffer(DType::kI64, 2, 2 * kThreads);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  ValueId outer = b.Load(zeros, thread);
  for (int k = 0; k < kDoublings; ++k) outer = b.Plus(outer, outer);
  const ValueId loop = b.Loop(2);
  ValueId inner = b.Load(zeros, b.Plus(b.Times(loop, kThreads), thread));
  for (int k = 0; k < kDoublings; ++k) inner = b.Plus(inner, inner);
  const ValueId x = b.Load(in, b.Plus(b.Plus(outer, thread), inner));
  b.Store(out, b.Plus(b.Times(loop, kThreads), thread), x);
  b.End(loop);
  ExpectRunsAsInterpreted(b.Take(3),
                          {Zeros(2 * kThreads * 4), Floats(kThreads, 1), Zeros(2 * kThreads * 8)});
}

TEST(SharedParts, SwizzledIndicesOfPtx) {
  constexpr int64_t kThreads = 256;  // one pattern of f32
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kThreads), in = b.Buffer(DType::kF32, 1, kThreads),
                zeros = b.Buffer(DType::kI64, 2, kThreads);
  const ValueId shared = b.Alloc(Space::kShared, DType::kF32, kThreads);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  ValueId zero = b.Load(zeros, thread);
  for (int k = 0; k < kDoublings; ++k) zero = b.Plus(zero, zero);
  b.Add({.code = Code::kStore,
         .src = {shared, b.Plus(thread, zero), b.Load(in, thread)},
         .imm = {1, 0, 0}});
  b.Barrier();
  b.Store(out, thread, b.Load(shared, thread));
  ExpectRunsAsInterpreted(b.Take(3),
                          {Zeros(kThreads * 4), Floats(kThreads, 1), Zeros(kThreads * 8)});
}

// x + ... of numbers in memory, doubled: no multiple of one number.
const UOp* DoubledSum(Graph& g, const UOp* i) {
  const auto load = [&](int64_t k) {
    return LoadAt(g, 2, DType::kI64, 1000 * kParts,
                  Add(g, Mul(g, i, ConstIndex(g, kParts)), ConstIndex(g, k)));
  };
  const UOp* sum = load(0);
  for (int64_t k = 1; k < kParts; ++k) sum = Add(g, sum, load(k));
  for (int k = 0; k < kDoublings; ++k) sum = Add(g, Add(g, sum, load(k % kParts)), sum);
  return sum;
}

TEST(SharedParts, IndicesOfKernels) {
  Graph g;
  const UOp* const i = Range(g, 0, 1000);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 5000, DoubledSum(g, i));
  EXPECT_EQ(Compiled(Sink(g, {StoreAt(g, 0, 1000, i, x)})), absl::OkStatus());
}

// Comparisons of numbers in memory, joined by `op`, and that joined with itself. `at`: of a row of
// kParts numbers.
const UOp* JoinedConditions(Graph& g, Op op, const UOp* at, int64_t rows) {
  const auto compared = [&](int64_t k) {
    const UOp* const place = Add(g, Mul(g, at, ConstIndex(g, kParts)), ConstIndex(g, k));
    return Alu(g, Op::kCmpLt, LoadAt(g, 3, DType::kF32, rows * kParts, place),
               ConstOf(g, DType::kF32, 1));
  };
  const UOp* all = compared(0);
  for (int64_t k = 1; k < kParts; ++k) all = Alu(g, op, all, compared(k));
  for (int k = 0; k < kDoublings; ++k) {
    const UOp* const once = Alu(g, op, all, compared(k % kParts));
    all = Alu(g, op, once, Alu(g, op, all, compared((k + 1) % kParts)));
  }
  return all;
}

TEST(SharedParts, Conjuncts_AreEachOnce) {
  Graph g;
  const UOp* const all = JoinedConditions(g, Op::kAnd, Range(g, 0, 100), 100);
  EXPECT_EQ(ConjunctsOf(all).size(), kParts);
}

TEST(SharedParts, GatesOfLoads) {
  Graph g;
  const UOp* const i = Range(g, 0, 100);
  const UOp* const x = GatedLoadAt(g, 1, DType::kF32, 100, i, JoinedConditions(g, Op::kAnd, i, 100),
                                   ConstOf(g, DType::kF32, 0));
  EXPECT_EQ(Compiled(Sink(g, {StoreAt(g, 0, 100, i, x)})), absl::OkStatus());
}

// A sum of products under a condition: matrix units compute it where an operand is 0 outside.
TEST(SharedParts, ConditionsOfProducts) {
  constexpr int64_t kSide = 128;
  Graph g;
  const UOp *i = Range(g, 0, kSide), *j = Range(g, 1, kSide), *k = ReduceRange(g, 2, kSide);
  const auto load = [&](int64_t slot, const UOp* row, const UOp* column) {
    return Cast(
        g, LoadAt(g, slot, DType::kBF16, kSide * kSide, RowMajor(g, {row, column}, {kSide, kSide})),
        DType::kF32);
  };
  const UOp* const product = Mul(g, load(1, i, k), load(2, k, j));
  const UOp* const gate = JoinedConditions(g, Op::kAnd, i, kSide);
  const UOp* const sum =
      Fold(g, Op::kAdd, Where(g, gate, product, ConstOf(g, DType::kF32, 0)), {k});
  EXPECT_EQ(
      Compiled(Sink(g, {StoreAt(g, 0, kSide * kSide, RowMajor(g, {i, j}, {kSide, kSide}), sum)})),
      absl::OkStatus());
}

// Attention whose weights are multiplied by a number that was squared so often, and of whose scores
// conditions hide some.
const UOp* Attention(Graph& g, bool squared, bool hidden) {
  constexpr int64_t kRows = 64, kKeys = 1024, kWidth = 64;
  const UOp *i = Range(g, 0, kRows), *d = Range(g, 1, kWidth), *k = ReduceRange(g, 2, kKeys),
            *c = ReduceRange(g, 3, kWidth);
  const UOp* const query =
      LoadAt(g, 1, DType::kF32, kRows * kWidth, RowMajor(g, {i, c}, {kRows, kWidth}));
  const UOp* const key =
      LoadAt(g, 2, DType::kF32, kKeys * kWidth, RowMajor(g, {k, c}, {kKeys, kWidth}));
  const UOp* score = Fold(g, Op::kAdd, Mul(g, query, key), {c});
  if (hidden) {
    // Of the row and the step, so that panels have it.
    const UOp* const lowest = ConstOf(g, DType::kF32, -std::numeric_limits<double>::infinity());
    score = Where(g, JoinedConditions(g, Op::kOr, k, kKeys), lowest, score);
    score = Where(g, Alu(g, Op::kCmpLt, i, k), lowest, score);
  }
  const UOp* const most = Fold(g, Op::kMax, score, {k});
  const UOp* const weight = Alu(g, Op::kExp, Add(g, score, Alu(g, Op::kNeg, most)));
  const UOp* const sum = Fold(g, Op::kAdd, weight, {k});
  const UOp* factor = LoadAt(g, 4, DType::kF32, kKeys, k);
  for (int n = 0; squared && n < kDoublings; ++n) factor = Mul(g, factor, factor);
  const UOp* const value =
      LoadAt(g, 5, DType::kF32, kKeys * kWidth, RowMajor(g, {k, d}, {kKeys, kWidth}));
  const UOp* const term = Mul(g, Mul(g, Alu(g, Op::kFDiv, weight, sum), factor), value);
  return Sink(g, {StoreAt(g, 0, kRows * kWidth, RowMajor(g, {i, d}, {kRows, kWidth}),
                          Fold(g, Op::kAdd, term, {k}))});
}

TEST(SharedParts, FactorsOfWeightedSums) {
  for (const bool squared : {false, true}) {
    Graph g, made;
    const UOp* const sink = Attention(g, squared, /*hidden=*/false);
    const auto kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
    int range = -1;
    for (size_t r = 0; r < kernel.ranges.size(); ++r)
      if (kernel.ranges[r].extent == 1024) range = static_cast<int>(r);
    ASSERT_GE(range, 0);
    // What divides each weight comes out of the sum, unless there are too many factors to say so.
    const auto divided =
        ValueOrDie(codegen::AnalyzeKernel(codegen::WithoutFactors(made, kernel, range)));
    const auto phases = codegen::PhasesOf(squared ? kernel : divided, range, /*block=*/64);
    ASSERT_TRUE(phases.ok()) << phases.status();
    EXPECT_EQ(phases->max_of.size(), squared ? 1 : 2);
    EXPECT_EQ(Compiled(sink), absl::OkStatus());
  }
}

TEST(SharedParts, ConditionsThatHideSteps) {
  for (const bool squared : {false, true}) {
    Graph g;
    EXPECT_EQ(Compiled(Attention(g, squared, /*hidden=*/true)), absl::OkStatus());
  }
}

// As a client writes them: rows picked by a doubled sum, masked by joined conditions, and a softmax
// whose weights were squared.
TEST(SharedParts, OfWholeGraphs) {
  constexpr int64_t kRows = 64, kColumns = 256;
  for (const Target& target :
       {*TargetOf({.cpu = "sapphirerapids"}), CudaTarget("sm_90a", kMultiprocessors)}) {
    Graph g, lowered;
    const Expr x(g, Param(g, 0, DType::kF32, {kRows, kColumns}));
    const Expr parts(g, Param(g, 1, DType::kI64, {kParts, kRows}));
    const auto part = [&](int64_t k) {
      return parts.shrink({k % kParts, k % kParts + 1, 0, kRows}).reshape({kRows, 1});
    };
    Expr row = part(0), all = row > part(1), factor = x;
    for (int64_t k = 1; k < kParts; ++k) row = row + part(k);
    for (int64_t k = 1; k < kParts; ++k) all = all & (part(k) > part(k + 1));
    for (int64_t k = 0; k < kDoublings; ++k) {
      row = (row + part(k)) + row;
      all = (all & (part(k) > part(k + 2))) & (all & (part(k) > part(k + 3)));
      factor = factor * factor;
    }
    // One-hot: the row of x whose number is `row`.
    const Expr number(g, Iota(g, DType::kI64, Dim(kRows)));
    const Expr is_row =
        number.reshape({1, kRows}).expand({kRows, kRows}) == row.expand({kRows, kRows});
    const auto over_rows = [&](const Expr& matrix) {
      return matrix.reshape({1, kRows, kColumns}).expand({kRows, kRows, kColumns});
    };
    const Expr picked = is_row.reshape({kRows, kRows, 1})
                            .expand({kRows, kRows, kColumns})
                            .where(over_rows(x), 0)
                            .sum({1})
                            .reshape({kRows, kColumns});
    const Expr shown = all.expand({kRows, kColumns}).where(picked, -1e9);
    const Expr weights = (shown - shown.largest({1}).expand({kRows, kColumns})).exp();
    const Expr normal = weights / weights.sum({1}).expand({kRows, kColumns});
    const Expr result = (normal * factor).sum({1});
    const auto schedule =
        ValueOrDie(schedule::MakeSchedule(lowered, Sink(g, {result.node()}), target));
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      const auto compiled = CompileKernel(kernel.ast, {.target = target});
      EXPECT_TRUE(compiled.ok()) << compiled.status();
    }
  }
}

}  // namespace
}  // namespace outboard::test
