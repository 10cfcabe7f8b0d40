// Kernels that the compiler makes products by warpgroups of (compiler/program/hopper/plan.h): their
// programs in the interpreter and their PTX on the PTX machine, against a walk of the kernel; and
// kernels that it must leave to others.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/program/expand.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/interpret.h"
#include "compiler/proof/in_range.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

enum class After {
  kNothing,
  kBiasAndRelu,
  kResidual,
  kTwoResults,
  kGradientOfRelu,
  kTwoTypes,
  kInPlace,
  kMomentum,  // slot 0 is renewed in place, and slot 3 is computed from what it was
};

struct KernelCase {
  std::string name;
  int64_t m = 128, n = 64, k = 128;
  int64_t batch = 1, heads = 1;  // two ranges that are no single one: [batch, m, heads, k]
  bool a_turned = false, b_turned = false;
  DType dtype = DType::kBF16, result = DType::kF32;
  After after = After::kNothing;
  int multiprocessors = 132;
  bool computed = false;  // A is 2 * a: no load
  int64_t shift = 0;      // of A's index
  bool tf32 = false;      // operands of f32 may be rounded
  int boxed = 1;          // results that leave in boxes
  bool full_digits = false;  // operands of f32 have 24 digits
  bool infinite = false;     // and some are infinite or NaN
  int biases = 0;            // further ones that are added
  int64_t pitch = 0;         // elements from a row of y to the next; 0: n
  DType of_b = DType::kVoid;  // where it is another than A's
};

// y[batch, heads, m, n] = f(sum over k of a * b); slots y, a, b, and a bias, residual or result.
const UOp* KernelOf(Graph& g, const KernelCase& p) {
  const UOp *const batch = Range(g, 0, p.batch), *const head = Range(g, 1, p.heads),
                   *const m = Range(g, 2, p.m), *const n = Range(g, 3, p.n),
                   *const k = ReduceRange(g, 4, p.k);
  const auto index = [&](const UOp* row, int64_t rows, bool turned) {
    return turned ? RowMajor(g, {batch, k, head, row}, {p.batch, p.k, p.heads, rows})
                  : RowMajor(g, {batch, row, head, k}, {p.batch, rows, p.heads, p.k});
  };
  const int64_t batches = p.batch * p.heads;
  const UOp* a_index = index(m, p.m, p.a_turned);
  if (p.shift != 0) a_index = Add(g, a_index, ConstIndex(g, p.shift));
  const UOp* a = LoadAt(g, 1, p.dtype, batches * p.m * p.k + p.shift, a_index);
  if (p.computed) a = Add(g, a, a);
  const UOp* const b =
      LoadAt(g, 2, p.of_b == DType::kVoid ? p.dtype : p.of_b, batches * p.k * p.n,
             index(n, p.n, /*turned=*/!p.b_turned));
  const auto wide = [&](const UOp* x) {
    return x->dtype == DType::kF32 ? x : Cast(g, x, DType::kF32);
  };
  const UOp* y = Fold(g, Op::kAdd, Mul(g, wide(a), wide(b)), {k});
  const int64_t pitch = p.pitch > 0 ? p.pitch : p.n, elements = batches * p.m * pitch;
  const UOp* const at = RowMajor(g, {batch, head, m, n}, {p.batch, p.heads, p.m, pitch});
  if (p.after == After::kBiasAndRelu)
    y = Alu(g, Op::kMax, Add(g, y, LoadAt(g, 3, DType::kF32, p.n, n)),
            ConstFloat(g, DType::kF32, 0));
  if (p.after == After::kGradientOfRelu)  // where the activation was not cut off
    y = Alu(g, Op::kWhere,
            Alu(g, Op::kCmpLt, ConstFloat(g, DType::kF32, 0),
                wide(LoadAt(g, 3, p.dtype, elements, at))),
            y, ConstFloat(g, DType::kF32, 0));
  for (int i = 0; i < p.biases; ++i) y = Add(g, y, LoadAt(g, 3 + i, DType::kF32, p.n, n));
  if (p.after == After::kInPlace) y = Add(g, y, LoadAt(g, 0, p.result, elements, at));
  if (p.after == After::kResidual)
    y = Add(g, y, wide(LoadAt(g, 3, p.dtype, elements, at)));
  std::vector<const UOp*> stores = {
      StoreAt(g, 0, elements, at, p.result == DType::kF32 ? y : Cast(g, y, p.result))};
  if (p.after == After::kMomentum) {
    const UOp* const old = Mul(g, LoadAt(g, 0, p.result, elements, at),
                               ConstFloat(g, DType::kF32, 0.5));
    stores = {StoreAt(g, 0, elements, at, Add(g, y, old)),
              StoreAt(g, 3, elements, at, Add(g, y, Mul(g, old, old)))};
  }
  if (p.after == After::kTwoTypes)
    stores.push_back(StoreAt(g, 3, elements, at, Cast(g, Mul(g, y, y), p.dtype)));
  if (p.after == After::kTwoResults) stores.push_back(StoreAt(g, 3, elements, at, Mul(g, y, y)));
  return g.MakeChecked(Op::kSink, DType::kVoid, stores,
                       p.tf32 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{});
}

codegen::LoopNest NestOf(Graph& guards, const UOp* sink) {
  return *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
}

// Numbers of 24 digits, below 1 / 4; where the case asks for it, an infinity and a NaN in the last
// row and column of the last batch and head.
void ChangeInputs(const KernelCase& p, Buffers& buffers) {
  const auto set = [&](size_t slot, int64_t at, float number) {
    std::memcpy(buffers[slot].data() + at * 4, &number, 4);
  };
  for (const size_t slot : {1, 2})
    for (size_t i = 0; p.full_digits && i < buffers[slot].size() / 4; ++i) {
      const auto digits = static_cast<float>(i * 2654435761u & 0x7fffff) * 0x1p-23f;
      const auto at = static_cast<int64_t>(i);
      set(slot, at, static_cast<float>(LoadFloat(DType::kF32, &buffers[slot][i * 4])) / 16 *
                        (1 + digits));
    }
  if (!p.infinite) return;
  // a is [batch, row, head, k], or turned [batch, k, head, row]; b is so by columns.
  const auto place = [&](bool turned, int64_t batch, int64_t row, int64_t rows, int64_t head,
                         int64_t k) {
    return turned ? ((batch * p.k + k) * p.heads + head) * rows + row
                  : ((batch * rows + row) * p.heads + head) * p.k + k;
  };
  const auto set_a = [&](int64_t batch, int64_t row, int64_t head, int64_t k, float number) {
    set(1, place(p.a_turned, batch, row, p.m, head, k), number);
  };
  const auto set_b = [&](int64_t batch, int64_t column, int64_t head, int64_t k, float number) {
    set(2, place(!p.b_turned, batch, column, p.n, head, k), number);
  };
  set_a(p.batch - 1, p.m - 1, p.heads - 1, 5, INFINITY);
  set_a(0, 3, p.heads - 1, 0, std::bit_cast<float>(0x7f800001u));
  set_b(p.batch - 1, p.n - 1, p.heads - 1, 5, 0);
  set_b(p.batch - 1, 2, 0, p.k - 1, -INFINITY);
}

void CheckKernel(const KernelCase& test) {
  SCOPED_TRACE(test.name);
  Graph g, guards;
  const UOp* const sink = KernelOf(g, test);
  const Target target = CudaTarget("sm_90a", test.multiprocessors);
  Buffers start = RandomBuffers(sink, 1);
  ChangeInputs(test, start);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  if (test.infinite) {
    int infinite = 0;
    for (size_t i = 0; i < want[0].size(); i += 4)
      infinite += !std::isfinite(LoadFloat(DType::kF32, &want[0][i]));
    ASSERT_EQ(infinite, 2 * test.n + test.m);
  }
  // Sums of f32 in another order, then rounded.
  const double tolerance = test.result == DType::kF32 ? 1e-5 : 8e-3;

  const codegen::LoopNest kernel = NestOf(guards, sink);
  const auto product = codegen::FindMmaProduct(kernel);
  ASSERT_TRUE(product.ok()) << product.status();
  const auto shape = program::HopperShapeOf(kernel, *product);
  ASSERT_TRUE(shape.ok()) << shape.status();
  const auto plan = program::MakeHopperPlan(kernel, *product, {.columns = 64, .stages = 2});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->boxed.size(), static_cast<size_t>(test.boxed));
  const auto program = program::ExpandHopper(kernel, *plan);
  ASSERT_TRUE(program.ok()) << program.status();
  Buffers got = start;
  const program::RunReport report = program::Interpret(*program, got, {}, {.seed = 3});
  ASSERT_TRUE(report.ok()) << report.message;
  ExpectClose(sink, got, want, tolerance);
  if (testing::Test::HasFatalFailure()) return;

  const auto compiled = CompileKernel(sink, {.target = target});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->object.find(".local"), std::string::npos);
  ASSERT_TRUE(absl::StrContains(compiled->object, "wgmma.mma_async"));
  EXPECT_EQ(absl::StrContains(compiled->object, ".global.shared::cta.bulk_group"), test.boxed > 0);
  got = start;
  const absl::Status ran = RunOnPtxMachine(*compiled, got);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectClose(sink, got, want, tolerance);
  if (const std::string ptxas = FindPtxas(); !ptxas.empty()) {
    const auto stack_bytes = StackBytesOf(ptxas, compiled->object, "sm_90a");
    ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
    EXPECT_EQ(*stack_bytes, 0);
  }
}

TEST(HopperKernel, ProductsWithEpilogues_RunAsTheWalk) {
  const KernelCase cases[] = {
      {.name = "plain", .m = 256, .n = 256, .k = 128, .multiprocessors = 2},
      {.name = "a turned", .m = 256, .n = 128, .a_turned = true, .multiprocessors = 2},
      {.name = "b turned, f16",
       .m = 256,
       .n = 128,
       .b_turned = true,
       .dtype = DType::kF16,
       .result = DType::kF16,
       .multiprocessors = 2},
      {.name = "both turned, remainders, persistent",
       .m = 392,
       .n = 136,
       .k = 136,
       .a_turned = true,
       .b_turned = true,
       .result = DType::kBF16,
       .multiprocessors = 2},
      {.name = "bias and relu",
       .m = 256,
       .n = 128,
       .result = DType::kBF16,
       .after = After::kBiasAndRelu,
       .multiprocessors = 2},
      {.name = "residual, remainders",
       .m = 200,
       .n = 136,
       .result = DType::kBF16,
       .after = After::kResidual,
       .multiprocessors = 1},
      {.name = "two results",
       .m = 256,
       .n = 128,
       .after = After::kTwoResults,
       .multiprocessors = 2,
       .boxed = 2},
      {.name = "gradient of relu, remainders",
       .m = 200,
       .n = 136,
       .result = DType::kBF16,
       .after = After::kGradientOfRelu,
       .multiprocessors = 1},
      {.name = "results of two types, one in boxes",
       .m = 200,
       .n = 136,
       .after = After::kTwoTypes,
       .multiprocessors = 1},
      // Boxes leave after what is stored pair by pair: over the old momentum.
      {.name = "a momentum in place, and a result of what it was",
       .m = 256,
       .n = 128,
       .after = After::kMomentum,
       .multiprocessors = 2,
       .boxed = 0},
      {.name = "the same with rows beyond the last tile",
       .m = 200,
       .n = 72,
       .after = After::kMomentum,
       .multiprocessors = 2,
       .boxed = 0},
      {.name = "a result that is read, too, pair by pair",
       .m = 200,
       .n = 136,
       .after = After::kInPlace,
       .multiprocessors = 1,
       .boxed = 0},
      {.name = "rows of 260 bytes leave pair by pair",
       .m = 256,
       .n = 130,
       .b_turned = true,
       .result = DType::kBF16,
       .multiprocessors = 1,
       .boxed = 0},
      {.name = "an odd number of columns in rows that are further apart, in boxes",
       .m = 200,
       .n = 131,
       .b_turned = true,
       .result = DType::kBF16,
       .after = After::kBiasAndRelu,
       .multiprocessors = 1,
       .pitch = 136},
      {.name = "an odd number of columns of f32 in boxes, groups of tiles that are not whole",
       .m = 1100,
       .n = 131,
       .b_turned = true,
       .after = After::kBiasAndRelu,
       .multiprocessors = 2,
       .pitch = 132},
      {.name = "e4m3, bias and relu",
       .m = 256,
       .n = 128,
       .k = 256,
       .b_turned = true,
       .dtype = DType::kF8E4M3,
       .result = DType::kBF16,
       .after = After::kBiasAndRelu,
       .multiprocessors = 2},
      {.name = "e5m2, residual, remainders, persistent",
       .m = 392,
       .n = 136,
       .k = 272,
       .b_turned = true,
       .dtype = DType::kF8E5M2,
       .result = DType::kBF16,
       .after = After::kResidual,
       .multiprocessors = 2},
      {.name = "e5m2 by e4m3, bias and relu, remainders",
       .m = 392,
       .n = 136,
       .k = 272,
       .b_turned = true,
       .dtype = DType::kF8E5M2,
       .result = DType::kBF16,
       .after = After::kBiasAndRelu,
       .multiprocessors = 2,
       .of_b = DType::kF8E4M3},
      {.name = "TF32, remainders",
       .m = 200,
       .n = 136,
       .k = 100,
       .b_turned = true,
       .dtype = DType::kF32,
       .after = After::kBiasAndRelu,
       .multiprocessors = 1,
       .tf32 = true},
      {.name = "TF32, both across k, remainders",
       .m = 200,
       .n = 136,
       .k = 100,
       .a_turned = true,
       .dtype = DType::kF32,
       .after = After::kBiasAndRelu,
       .multiprocessors = 1,
       .tf32 = true},
      {.name = "f32 by three products, bias, remainders",
       .m = 136,
       .n = 136,
       .k = 132,
       .b_turned = true,
       .dtype = DType::kF32,
       .after = After::kBiasAndRelu,
       .multiprocessors = 1,
       .full_digits = true},
      {.name = "f32 by three products, batches and heads, infinities",
       .m = 136,
       .n = 72,
       .k = 128,
       .batch = 2,
       .heads = 2,
       .b_turned = true,
       .dtype = DType::kF32,
       .multiprocessors = 1,
       .full_digits = true,
       .infinite = true},
      {.name = "f32 by three products, B across k, bias, remainders",
       .m = 136,
       .n = 136,
       .k = 132,
       .dtype = DType::kF32,
       .after = After::kBiasAndRelu,
       .multiprocessors = 1,
       .full_digits = true},
      {.name = "f32 by three products, both across k, batches and heads, infinities",
       .m = 136,
       .n = 72,
       .k = 128,
       .batch = 2,
       .heads = 2,
       .a_turned = true,
       .dtype = DType::kF32,
       .multiprocessors = 1,
       .full_digits = true,
       .infinite = true},
      {.name = "batches and heads",
       .m = 128,
       .n = 128,
       .batch = 2,
       .heads = 3,
       .b_turned = true,
       .multiprocessors = 2},
  };
  for (const KernelCase& test : cases) {
    CheckKernel(test);
    if (HasFatalFailure()) return;
  }
}

TEST(HopperKernel, TilesAsAnOptAsksForThem_RunAsTheWalk) {
  struct Asked {
    const char* name;
    program::HopperTile tile;
    KernelCase test;
  };
  const Asked cases[] = {
      {"clusters, persistent",
       {.columns = 128, .stages = 2, .persistent_blocks = 132, .cluster = 2, .order = 2},
       {.m = 512, .n = 136, .k = 192, .result = DType::kBF16, .after = After::kBiasAndRelu}},
      {"sums in parts",
       {.columns = 128, .stages = 4, .split = 2},
       {.m = 200, .n = 136, .k = 648, .result = DType::kBF16, .after = After::kResidual}},
      {"256 columns, few steps", {.columns = 256}, {.m = 128, .n = 256, .k = 192}},
      {"192 columns, B stored [n][k], a cluster that copies half of it",
       {.columns = 192, .persistent_blocks = 132, .cluster = 2, .order = 2},
       {.m = 256, .n = 400, .k = 192, .b_turned = true, .result = DType::kBF16}},
      {"192 columns, sums in parts of less than a box",
       {.columns = 192, .stages = 2, .split = 2},
       {.m = 128, .n = 192, .k = 256, .result = DType::kBF16, .after = After::kBiasAndRelu}},
      {"192 columns of f32, B across k",
       {.columns = 192, .stages = 2},
       {.m = 128, .n = 200, .k = 96, .dtype = DType::kF32, .tf32 = true}},
  };
  for (const Asked& asked : cases) {
    SCOPED_TRACE(asked.name);
    Graph g;
    const UOp* const sink = KernelOf(g, asked.test);
    const codegen::Opt opt{codegen::OptKind::kWgmma, 2, program::WgmmaAmount(asked.tile)};
    const Target target = CudaTarget("sm_90a", 132);
    EXPECT_EQ(program::WgmmaTileOf(opt.amount, target), asked.tile);
    EXPECT_EQ(*codegen::ParseOpts(codegen::OptToString(opt)), std::vector<codegen::Opt>{opt});
    const Buffers start = RandomBuffers(sink, 1);
    Buffers want = start, got = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    const auto compiled = CompileKernel(sink, {.target = target, .opts = {{opt}}});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const absl::Status ran = RunOnPtxMachine(*compiled, got);
    ASSERT_TRUE(ran.ok()) << ran;
    ExpectClose(sink, got, want, asked.test.result == DType::kF32 ? 1e-5 : 8e-3);
    if (const std::string ptxas = FindPtxas(); !ptxas.empty()) {
      const auto stack_bytes = StackBytesOf(ptxas, compiled->object, "sm_90a");
      ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
      EXPECT_EQ(*stack_bytes, 0);
    }
  }
}

TEST(HopperKernel, TilesOf8BitFloats_HaveHalfOfTheColumns) {
  Graph g;
  const UOp* const sink =
      KernelOf(g, {.m = 256, .n = 256, .k = 256, .b_turned = true, .dtype = DType::kF8E5M2});
  CompileOptions options{.target = CudaTarget("sm_90a", 132)};
  options.opts = {{codegen::OptKind::kWgmma, 2, program::WgmmaAmount({.columns = 256})}};
  const absl::Status status = CompileKernel(sink, options).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "64 to 128 columns")) << status;
  options.opts = {{codegen::OptKind::kWgmma, 2, program::WgmmaAmount({.columns = 128})}};
  EXPECT_TRUE(CompileKernel(sink, options).ok());
}

TEST(HopperKernel, TilesThatABlockHasNoRoomFor_AreRefusedByTheirLimit) {
  const std::pair<program::HopperTile, const char*> cases[] = {
      {{.columns = 256, .stages = 8}, "a block has 232448"},
      {{.columns = 96}, "64 to 256 columns"},
      {{.stages = 3}, "3 stages"},
      {{.cluster = 2, .split = 2}, "one of them is 1"},
      {{.cluster = 4}, "2 rows of tiles; a cluster has 4"},
      {{.cluster = 2, .order = 3}, "an order of 3"},
  };
  for (const auto& [tile, why] : cases) {
    Graph g;
    const UOp* const sink = KernelOf(g, {.m = 256, .n = 256, .k = 256});
    CompileOptions options{.target = CudaTarget("sm_90a", 132)};
    options.opts = {{codegen::OptKind::kWgmma, 2, program::WgmmaAmount(tile)}};
    const absl::Status status = CompileKernel(sink, options).status();
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
    options.target = CudaTarget("sm_90", 132);
    EXPECT_TRUE(absl::IsUnimplemented(CompileKernel(sink, options).status()));
  }
}

// What is chosen without measurement, for 132 multiprocessors.
TEST(HopperKernel, TheChoiceFollowsWaves) {
  struct Chosen {
    int64_t m, n, k, columns, cluster, split;
    bool persists;
    size_t boxed = 1;  // parts narrower than a box leave pair by pair
    int multiprocessors = 132;
  };
  const Chosen cases[] = {
      {8192, 8192, 8192, 256, 2, 1, true},    // many waves: the largest tile, two blocks share B
      {1024, 1024, 8192, 128, 1, 2, false},   // 64 tiles, in two parts each
      {512, 512, 16384, 64, 1, 4, false, 0},  // 32 tiles
      // 72 tiles: seven rounds of 11, eight of clusters, which have 10 of the 11.
      {768, 3072, 8192, 256, 1, 1, true, 1, 11},
      {768, 3072, 8192, 256, 2, 1, true, 1, 12},
  };
  for (const Chosen& chosen : cases) {
    SCOPED_TRACE(absl::StrCat(chosen.m, " ", chosen.n, " ", chosen.k));
    Graph g, guards;
    const codegen::LoopNest kernel = NestOf(
        guards, KernelOf(g, {.m = chosen.m, .n = chosen.n, .k = chosen.k, .result = DType::kBF16}));
    const Target target = CudaTarget("sm_90a", chosen.multiprocessors);
    const auto mma = codegen::PlanMma(kernel, target, nullptr);
    ASSERT_TRUE(mma.ok() && mma->has_value());
    const auto plan = program::PlanHopper(kernel, target, nullptr, *mma);
    ASSERT_TRUE(plan.ok() && plan->has_value()) << plan.status();
    const program::HopperTile& tile = (*plan)->tile;
    EXPECT_EQ(tile.columns, chosen.columns);
    EXPECT_EQ(tile.cluster, chosen.cluster);
    EXPECT_EQ(tile.split, chosen.split);
    EXPECT_EQ(tile.persistent_blocks > 0, chosen.persists);
    EXPECT_EQ((*plan)->boxed.size(), chosen.boxed);
  }
}

TEST(HopperKernel, WhatNoViewCanCopy_IsLeftToOthers) {
  const std::pair<KernelCase, const char*> cases[] = {
      {{.name = "f32 in rows of 504 bytes", .k = 126, .b_turned = true, .dtype = DType::kF32},
       "504 bytes apart"},
      {{.name = "a computed operand", .computed = true}, "computed"},
      {{.name = "e4m3 by columns", .dtype = DType::kF8E4M3}, "by columns"},
      {{.name = "an index that begins elsewhere", .dtype = DType::kF32, .shift = 8},
       "no sum of its loops"},
  };
  for (const auto& [test, why] : cases) {
    SCOPED_TRACE(test.name);
    Graph g, guards;
    const UOp* const sink = KernelOf(g, test);
    const codegen::LoopNest kernel = NestOf(guards, sink);
    const auto product = codegen::FindMmaProduct(kernel);
    ASSERT_TRUE(product.ok()) << product.status();
    const absl::Status status = program::HopperShapeOf(kernel, *product).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
  }
}

TEST(HopperKernel, SmallProductsAndOtherTargets_AreLeftToMma) {
  const auto uses_wgmma = [](const KernelCase& test, const char* arch) {
    Graph g;
    const auto compiled = CompileKernel(KernelOf(g, test), {.target = CudaTarget(arch, 132)});
    OB_CHECK(compiled.ok());
    return absl::StrContains(compiled->object, "wgmma");
  };
  const KernelCase large{.m = 4096, .n = 4096, .k = 4096};
  EXPECT_TRUE(uses_wgmma(large, "sm_90a"));
  EXPECT_FALSE(uses_wgmma(large, "sm_90"));
  EXPECT_FALSE(uses_wgmma(large, "sm_80"));
  EXPECT_FALSE(uses_wgmma({.m = 256, .n = 256, .k = 1024}, "sm_90a"));  // 8 blocks of 132
  KernelCase exact = large;
  exact.b_turned = true;
  exact.dtype = DType::kF32;
  EXPECT_TRUE(uses_wgmma(exact, "sm_90a"));
  exact.b_turned = false;  // a right side and a weight's gradient
  EXPECT_TRUE(uses_wgmma(exact, "sm_90a"));
  exact.a_turned = true;
  EXPECT_TRUE(uses_wgmma(exact, "sm_90a"));
  exact.k = 96;  // too few steps for the bound of f32
  EXPECT_FALSE(uses_wgmma(exact, "sm_90a"));
}

// Buffers for which a launch has room, but not with views of three of them as well: the products
// are mma.sync's, which has none.
TEST(HopperKernel, ChoicesThatALaunchHasNoRoomFor_AreLeftForTheNext) {
  KernelCase test{.name = "many buffers", .m = 256, .n = 128, .multiprocessors = 2};
  const Target target = CudaTarget("sm_90a", test.multiprocessors);
  for (const int biases : {1, 480}) {
    SCOPED_TRACE(biases);
    test.biases = biases;
    Graph g;
    const auto compiled = CompileKernel(KernelOf(g, test), {.target = target});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(absl::StrContains(compiled->object, "wgmma.mma_async"), biases == 1);
    EXPECT_EQ(absl::StrContains(compiled->object, "mma.sync"), biases > 1);
  }
}

// A pair is loaded from each buffer at once; as many pairs as registers are kept for come before
// the first of them is stored.
TEST(HopperKernel, WhatIsReadBesideSums_IsLoadedAheadOfTheirStores) {
  for (const int64_t n : {128, 256}) {
    SCOPED_TRACE(n);
    Graph g;
    const auto compiled = CompileKernel(
        KernelOf(g, {.m = 256, .n = n, .after = After::kInPlace, .multiprocessors = 2}),
        {.target = CudaTarget("sm_90a", 2)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(absl::StrContains(compiled->object, "wgmma.mma_async"));
    int64_t loads = 0, stores = 0, in_flight = 0, most = 0;
    for (const absl::string_view line : absl::StrSplit(compiled->object, '\n')) {
      if (absl::StrContains(line, "ld.global")) {
        most = std::max(most, ++in_flight);
        ++loads;
      } else if (absl::StrContains(line, "st.global")) {
        in_flight = 0;
        ++stores;
      }
    }
    EXPECT_EQ(most, 8);
    EXPECT_EQ(loads, stores);
  }
}

}  // namespace
}  // namespace outboard::test
