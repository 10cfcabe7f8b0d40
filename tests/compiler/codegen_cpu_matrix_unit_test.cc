// Sums of products of bf16 by the processor's own instructions
// (compiler/optimize/operands/cpu_matrix_unit.h): what they compute on each kind of processor, and
// where they are refused.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "base/check.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/test_targets.h"

namespace outboard::test {
namespace {

using codegen::Bf16Products;
using codegen::OptsToString;
using codegen::ParseOpts;

struct Product {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool a_turned = false, b_turned = false;  // a[k,m], b[n,k]
  DType result = DType::kBF16;
  int64_t a_rows = 0;  // where not 0, a has only so many; beyond is zero
};

// y[batch,m,n] = sum a[batch,m,k] * b[batch,k,n] over k; slots y, a, b. Axes 0 to 3, without a
// batch 0 to 2.
const UOp* Bf16Product(Graph& g, const Product& p) {
  const UOp *batch = Range(g, 0, p.batch), *m = Range(g, 1, p.m), *n = Range(g, 2, p.n);
  const UOp* const k = ReduceRange(g, 3, p.k);
  const int64_t rows = p.a_rows > 0 ? p.a_rows : p.m;
  const UOp* const a_index = p.a_turned ? RowMajor(g, {batch, k, m}, {p.batch, p.k, rows})
                                        : RowMajor(g, {batch, m, k}, {p.batch, rows, p.k});
  const UOp* const b_index = p.b_turned ? RowMajor(g, {batch, n, k}, {p.batch, p.n, p.k})
                                        : RowMajor(g, {batch, k, n}, {p.batch, p.k, p.n});
  const int64_t a_elements = p.batch * rows * p.k;
  const UOp* const a = p.a_rows > 0
                           ? GatedLoadAt(g, 1, DType::kBF16, a_elements, a_index,
                                         Within(g, m, rows), ConstFloat(g, DType::kBF16, 0))
                           : LoadAt(g, 1, DType::kBF16, a_elements, a_index);
  const UOp* const b = LoadAt(g, 2, DType::kBF16, p.batch * p.k * p.n, b_index);
  const UOp* const sum =
      Fold(g, Op::kAdd, Mul(g, Cast(g, a, DType::kF32), Cast(g, b, DType::kF32)), {k});
  return Sink(g,
              {StoreAt(g, 0, p.batch * p.m * p.n, RowMajor(g, {batch, m, n}, {p.batch, p.m, p.n}),
                       Cast(g, sum, p.result))});
}

// Names of LLVM; empty is this machine. "cooperlake" has the vectors and no tiles.
constexpr const char* kVectorsOnly = "cooperlake";

bool HostHas(Bf16Products wanted) {
  const Bf16Products has = HostTarget().bf16;
  return has == wanted || (has == Bf16Products::kTiles && wanted == Bf16Products::kVectors);
}

// Compiles by these Opts, or the heuristic's where `opts` is null, and compares with the walk.
// Small whole numbers of eighths, whose sums f32 holds exactly: no tolerance but that of the
// result.
void CheckProduct(const Product& p, const char* opts, const char* cpu) {
  SCOPED_TRACE(testing::Message() << "batch " << p.batch << " m " << p.m << " n " << p.n << " k "
                                  << p.k << " turned " << p.a_turned << p.b_turned << " opts "
                                  << (opts == nullptr ? "of the heuristic" : opts) << " on "
                                  << cpu);
  Graph g;
  const UOp* const sink = Bf16Product(g, p);
  const Buffers start = RandomBuffers(sink, 1);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  CompileOptions options{.cpu = cpu, .dump = std::getenv("DUMP") != nullptr};
  if (opts != nullptr) options.opts = *ParseOpts(opts);
  auto compiled = CompileKernel(sink, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto loaded = LoadedKernel::Load(*std::move(compiled));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  Buffers once = start, split = start;
  (*loaded)->RunGuarded(once, 1);
  ExpectClose(sink, once, want, 0);
  (*loaded)->RunGuarded(split, 3);
  ASSERT_EQ(split, once) << "the split of tasks changes bits";
}

class CpuMatrixUnitOn : public testing::TestWithParam<Bf16Products> {
 protected:
  void SetUp() override {
    if (!HostHas(GetParam())) GTEST_SKIP() << "this processor, or system, has none of these";
  }
  const char* cpu() const { return GetParam() == Bf16Products::kTiles ? "" : kVectorsOnly; }
};

INSTANTIATE_TEST_SUITE_P(Bf16, CpuMatrixUnitOn,
                         testing::Values(Bf16Products::kVectors, Bf16Products::kTiles),
                         [](const auto& info) {
                           return info.param == Bf16Products::kTiles ? "Tiles" : "Vectors";
                         });

TEST_P(CpuMatrixUnitOn, EveryOrderOfOperands) {
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true})
      for (const DType result : {DType::kBF16, DType::kF32}) {
        CheckProduct({.m = 64,
                      .n = 64,
                      .k = 64,
                      .a_turned = a_turned,
                      .b_turned = b_turned,
                      .result = result},
                     "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0 THREAD:0:1", cpu());
        CheckProduct({.m = 37,
                      .n = 51,
                      .k = 45,
                      .a_turned = a_turned,
                      .b_turned = b_turned,
                      .result = result},
                     "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0 THREAD:0:1", cpu());
        if (HasFatalFailure()) return;
      }
}

// Ranges shorter than a square, of several, and one step more or less.
TEST_P(CpuMatrixUnitOn, SizesAroundTheSquare) {
  for (const int64_t m : {9, 16, 17, 33})
    for (const int64_t n : {9, 16, 33})
      for (const int64_t k : {2, 31, 32, 65}) {
        CheckProduct({.m = m, .n = n, .k = k},
                     m < 16 ? "VECTOR:1:16 UPCAST:0:9 CPU_MATRIX_UNIT:2:0"
                            : "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0",
                     cpu());
        if (HasFatalFailure()) return;
      }
}

TEST(CpuMatrixUnit, TheHeuristicTakesTiles) {
  if (!HostHas(Bf16Products::kTiles)) GTEST_SKIP() << "this processor, or system, has no tiles";
  for (const auto& [m, n, k] : {std::tuple{8, 9, 500}, {31, 100, 70}, {200, 130, 64}}) {
    const Product p{.m = m, .n = n, .k = k};
    Graph g;
    const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(Bf16Product(g, p)));
    EXPECT_THAT(OptsToString(codegen::HeuristicOpts(kernel, HostTarget())),
                testing::HasSubstr("CPU_MATRIX_UNIT:2:0"));
    CheckProduct(p, nullptr, "");
  }
}

TEST_P(CpuMatrixUnitOn, BlocksAndCopies) {
  const Product p{.batch = 3, .m = 70, .n = 100, .k = 80};
  for (const char* opts :
       {"VECTOR:2:16 UPCAST:2:2 UPCAST:1:16 CPU_MATRIX_UNIT:3:1 BLOCK:2:64 BLOCK:1:32 THREAD:0:1",
        "VECTOR:2:16 UPCAST:2:2 UPCAST:1:16 CPU_MATRIX_UNIT:3:1 BLOCK:1:32 THREAD:0:2 LOCAL:0:2 "
        "LOCAL:1:2",
        "VECTOR:2:16 UPCAST:1:16 CPU_MATRIX_UNIT:3:1 BLOCK:2:48 THREAD:0:1 LOCAL:1:1 LOCAL:0:3",
        "VECTOR:2:16 UPCAST:1:16 CPU_MATRIX_UNIT:3:1 SWAP:1:2 THREAD:0:2 LOCAL:0:2 LOCAL:1:2"}) {
    CheckProduct(p, opts, cpu());
    if (HasFatalFailure()) return;
  }
}

TEST_P(CpuMatrixUnitOn, LoadsBehindAGate) {
  for (const bool turned : {false, true})
    CheckProduct({.m = 40, .n = 40, .k = 40, .a_turned = turned, .a_rows = 27},
                 "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0", cpu());
}

// The same plans as programs: interpreted after every pass, on any machine.
TEST(CpuMatrixUnit, PlansAsPrograms) {
  const auto check = [](const Product& p, const char* opts) {
    Graph g;
    const UOp* const sink = Bf16Product(g, p);
    const Buffers start = RandomBuffers(sink, 1);
    Buffers want = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    for (const Bf16Products by : {Bf16Products::kVectors, Bf16Products::kTiles}) {
      SCOPED_TRACE(testing::Message()
                   << (by == Bf16Products::kTiles ? "tiles" : "vectors") << " m " << p.m << " n "
                   << p.n << " k " << p.k << " turned " << p.a_turned << p.b_turned << " " << opts);
      const auto planned = codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), *ParseOpts(opts),
                                              TestTargetWith(64, 32, by));
      ASSERT_TRUE(planned.ok()) << planned.status();
      std::vector<program::PassResult> passes;
      const auto made = program::ExpandPlan(planned->kernel, planned->plan, &passes);
      ASSERT_TRUE(made.ok()) << made.status();
      for (const program::PassResult& pass : passes) {
        Buffers got = start;
        const program::RunReport report = program::Interpret(pass.program, got, {});
        ASSERT_TRUE(report.ok()) << pass.pass << ": " << report.message;
        ExpectClose(sink, got, want, 0);
        if (HasFatalFailure()) FAIL() << pass.pass;
      }
    }
  };
  const char* const plain = "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0 THREAD:0:1";
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true})
      check({.m = 37, .n = 51, .k = 45, .a_turned = a_turned, .b_turned = b_turned}, plain);
  check({.m = 9, .n = 33, .k = 31}, "VECTOR:1:16 UPCAST:0:9 CPU_MATRIX_UNIT:2:0");
  check({.m = 33, .n = 16, .k = 65, .result = DType::kF32},
        "VECTOR:1:16 UPCAST:0:32 CPU_MATRIX_UNIT:2:0");
  check({.m = 40, .n = 40, .k = 40, .a_turned = true, .a_rows = 27},
        "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0");
  const Product blocked{.batch = 2, .m = 70, .n = 100, .k = 40};
  check(blocked,
        "VECTOR:2:16 UPCAST:2:2 UPCAST:1:16 CPU_MATRIX_UNIT:3:1 BLOCK:2:64 BLOCK:1:32 THREAD:0:1");
  check(blocked,
        "VECTOR:2:16 UPCAST:2:2 UPCAST:1:16 CPU_MATRIX_UNIT:3:1 BLOCK:1:32 THREAD:0:2 LOCAL:0:2 "
        "LOCAL:1:2");
  check(blocked,
        "VECTOR:2:16 UPCAST:1:16 CPU_MATRIX_UNIT:3:1 BLOCK:2:48 THREAD:0:1 LOCAL:1:1 LOCAL:0:3");
}

// What the interpreter adds in which order is what the processor does: the same bits of sums that
// round.
TEST_P(CpuMatrixUnitOn, ProgramsRoundAsTheProcessor) {
  Graph g;
  const UOp* const sink = Bf16Product(g, {.m = 24, .n = 40, .k = 150, .result = DType::kF32});
  Buffers buffers = {std::string(4 * 24 * 40, 0), std::string(2 * 24 * 150, 0),
                     std::string(2 * 150 * 40, 0)};
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const int slot : {1, 2})
    for (size_t i = 0; i < buffers[slot].size(); i += 2)
      StoreFloat(DType::kBF16, RoundTo(DType::kBF16, normal(random)), &buffers[slot][i]);
  Buffers interpreted = buffers;
  const auto opts = *ParseOpts("VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0");
  auto compiled = CompileKernel(sink, {.cpu = cpu(), .opts = opts});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  (*LoadedKernel::Load(*std::move(compiled)))->RunGuarded(buffers);
  const auto planned =
      codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), opts, TestTargetWith(64, 32, GetParam()));
  ASSERT_TRUE(planned.ok()) << planned.status();
  const auto made = program::ExpandPlan(planned->kernel, planned->plan);
  ASSERT_TRUE(made.ok()) << made.status();
  const program::RunReport report = program::Interpret(*made, interpreted, {});
  ASSERT_TRUE(report.ok()) << report.message;
  EXPECT_EQ(interpreted[0], buffers[0]);
}

// Sums that round: as far from the exact ones as docs/semantics.md allows, and no further.
TEST_P(CpuMatrixUnitOn, RoundsAsSumsMay) {
  constexpr int64_t kSize = 48, kSteps = 200;
  Graph g;
  const UOp* const sink =
      Bf16Product(g, {.m = kSize, .n = kSize, .k = kSteps, .result = DType::kF32});
  Buffers buffers = {std::string(4 * kSize * kSize, 0), std::string(2 * kSize * kSteps, 0),
                     std::string(2 * kSize * kSteps, 0)};
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const int slot : {1, 2})
    for (int64_t i = 0; i < kSize * kSteps; ++i)
      StoreFloat(DType::kBF16, RoundTo(DType::kBF16, normal(random)), &buffers[slot][2 * i]);
  auto compiled = CompileKernel(
      sink, {.cpu = cpu(), .opts = *ParseOpts("VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0")});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto loaded = LoadedKernel::Load(*std::move(compiled));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  (*loaded)->RunGuarded(buffers);
  for (int64_t i = 0; i < kSize; ++i)
    for (int64_t j = 0; j < kSize; ++j) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < kSteps; ++k) {
        const double product = LoadFloat(DType::kBF16, &buffers[1][2 * (i * kSteps + k)]) *
                               LoadFloat(DType::kBF16, &buffers[2][2 * (k * kSize + j)]);
        sum += product;
        size += std::abs(product);
      }
      const double got = LoadFloat(DType::kF32, &buffers[0][4 * (i * kSize + j)]);
      ASSERT_LE(std::abs(got - sum), kSteps * 0x1p-24 * size) << i << ", " << j;
    }
}

TEST(CpuMatrixUnit, WhatDoesNotFitIsRefused) {
  const auto refused = [](const UOp* sink, const char* opts, const char* cpu, const char* why) {
    const auto compiled = CompileKernel(sink, {.cpu = cpu, .opts = *ParseOpts(opts)});
    EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument) << opts;
    EXPECT_THAT(std::string(compiled.status().message()), testing::HasSubstr(why));
  };
  Graph g;
  const UOp* const product = Bf16Product(g, {.m = 100, .n = 100, .k = 100});
  const char* const tiles = "sapphirerapids";
  const char* const good = "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0";
  EXPECT_TRUE(CompileKernel(product, {.cpu = tiles, .opts = *ParseOpts(good)}).ok());
  refused(product, good, "skylake-avx512", "no products of bf16");
  refused(product, "UPCAST:0:16 CPU_MATRIX_UNIT:2:0", tiles, "no output range lies in lanes");
  refused(product, "VECTOR:1:8 UPCAST:0:16 CPU_MATRIX_UNIT:2:0", tiles, "lanes of 16");
  refused(product, "VECTOR:1:16 CPU_MATRIX_UNIT:2:1", tiles,
          "columns must move the other operand alone");
  refused(product, "VECTOR:1:16 CPU_MATRIX_UNIT:0:0", tiles, "axes of reductions");
  refused(product, "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0 CPU_MATRIX_UNIT:2:0", tiles,
          "done so already");
  refused(product, "VECTOR:1:16 CPU_MATRIX_UNIT:2:0 UPCAST:0:16", tiles,
          "before a CPU_MATRIX_UNIT");
  refused(product, "VECTOR:1:16 UPCAST:0:12 CPU_MATRIX_UNIT:2:0", tiles, "12 rows");
  refused(product, "VECTOR:1:16 UPCAST:1:2 UPCAST:0:48 CPU_MATRIX_UNIT:2:0", tiles, "48 rows");
  refused(product, "VECTOR:1:16 UPCAST:0:16 CPU_MATRIX_UNIT:2:0 THREAD:0:1 LOCAL:0:2 LOCAL:0:2",
          tiles, "copied already");
  const UOp* const in_f32 = MatMul(g, 64, 64, 64);
  refused(in_f32, good, tiles, "two loads of bf16");
}

}  // namespace
}  // namespace outboard::test
