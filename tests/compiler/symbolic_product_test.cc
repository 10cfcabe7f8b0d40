// Products of matrices whose rows, columns or batch end at a VAR: blocks beyond the end leave at
// once, by matrix units and by warpgroups. What lies below the end is that of a walk of the kernel,
// in the interpreter of programs and on the PTX machine, which counts the instructions.
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/program/expand.h"
#include "compiler/program/hopper/plan.h"
#include "tests/compiler/mma_check.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

enum class Ends { kRows, kInnerRows, kOuterRows, kColumns, kBatch, kSteps };

struct EndCase {
  const char* name;
  Ends ends = Ends::kRows;
  int64_t batch = 1, passages = 1, m = 512, n = 128, k = 128;  // rows are [passages][m]
  DType dtype = DType::kBF16;
  int64_t max() const {
    switch (ends) {
      case Ends::kRows:
      case Ends::kInnerRows: return m;
      case Ends::kOuterRows: return passages;
      case Ends::kColumns: return n;
      case Ends::kBatch: return batch;
      case Ends::kSteps: return k;
    }
    return 0;
  }
};

// y[batch, passage, m, n] = sum over k of a * b[batch, k, n], + bias[n]; slots y, a, b, bias.
const UOp* KernelOf(Graph& g, const EndCase& p) {
  const UOp* const end = g.MakeChecked(Op::kVar, DType::kVoid, {}, {0, 0, p.max()});
  const auto range = [&](int64_t id, int64_t extent, bool ends,
                         RangeKind kind = RangeKind::kOutput) {
    return g.MakeChecked(Op::kRange, DType::kVoid,
                         ends ? std::vector<const UOp*>{end} : std::vector<const UOp*>{},
                         {id, extent, static_cast<int64_t>(kind)});
  };
  const bool rows_end = p.ends == Ends::kRows || p.ends == Ends::kInnerRows;
  const UOp *const batch = range(0, p.batch, p.ends == Ends::kBatch),
                   *const passage = range(1, p.passages, p.ends == Ends::kOuterRows),
                   *const m = range(2, p.m, rows_end),
                   *const n = range(3, p.n, p.ends == Ends::kColumns),
                   *const k = range(4, p.k, p.ends == Ends::kSteps, RangeKind::kReduce);
  const int64_t rows = p.passages * p.m;
  const UOp* const row = RowMajor(g, {passage, m}, {p.passages, p.m});
  const auto wide = [&](const UOp* x) {
    return x->dtype == DType::kF32 ? x : Cast(g, x, DType::kF32);
  };
  const UOp* const a = LoadAt(g, 1, p.dtype, p.batch * rows * p.k,
                              RowMajor(g, {batch, row, k}, {p.batch, rows, p.k}));
  const UOp* const b = LoadAt(g, 2, p.dtype, p.batch * p.k * p.n,
                              RowMajor(g, {batch, k, n}, {p.batch, p.k, p.n}));
  const UOp* const y = Add(g, Fold(g, Op::kAdd, Mul(g, wide(a), wide(b)), {k}),
                           LoadAt(g, 3, DType::kF32, p.n, n));
  return Sink(g, {StoreAt(g, 0, p.batch * rows * p.n,
                          RowMajor(g, {batch, row, n}, {p.batch, rows, p.n}), y)});
}

// How many numbers below the end differ, or are all as before.
int DifferencesBelow(const EndCase& p, int64_t end, const std::string& got,
                     const std::string& want) {
  int differ = 0;
  size_t at = 0;
  for (int64_t batch = 0; batch < p.batch; ++batch)
    for (int64_t passage = 0; passage < p.passages; ++passage)
      for (int64_t m = 0; m < p.m; ++m)
        for (int64_t n = 0; n < p.n; ++n, at += 4) {
          const int64_t place = p.ends == Ends::kColumns     ? n
                                : p.ends == Ends::kBatch     ? batch
                                : p.ends == Ends::kOuterRows ? passage
                                                             : m;
          if (place >= end) continue;
          differ += LoadFloat(DType::kF32, &got[at]) != LoadFloat(DType::kF32, &want[at]);
        }
  return differ;
}

// Runs the program and the PTX with the VAR at 0, 1, values beside the edges of tiles, and the
// whole. What is done must be less at 1 than at the whole, by `times`; blocks that leave do next to
// nothing. Those of warpgroups begin their barriers before: what is done beside that counts there.
void CheckEnds(const EndCase& p, const program::Program& program, const CompiledKernel& compiled,
               const UOp* sink, double times) {
  const Buffers start = RandomBuffers(sink, 1);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  uint64_t of_one = 0, of_none = 0, of_all = 0;
  for (const int64_t end : {int64_t{0}, int64_t{1}, p.max() / 4, p.max() / 2 + 1, p.max()}) {
    SCOPED_TRACE(testing::Message() << "end " << end);
    const int64_t vars[] = {end};
    Buffers got = start;
    const program::RunReport report = program::Interpret(program, got, vars, {.seed = 2});
    ASSERT_TRUE(report.ok()) << report.message;
    EXPECT_EQ(DifferencesBelow(p, end, got[0], want[0]), 0);
    got = start;
    MachineCounts counts;
    const absl::Status ran = RunOnPtxMachine(compiled, got, vars, 1, nullptr, &counts);
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(DifferencesBelow(p, end, got[0], want[0]), 0);
    (end == 0 ? of_none : end == 1 ? of_one : of_all) = counts.warp_instructions;
    if (end == 0) {
      EXPECT_EQ(got[0], start[0]) << "nothing is stored";
    }
  }
  std::printf("%s: %llu warp instructions, at an end of 1 %llu, of blocks that leave %llu\n",
              p.name, static_cast<unsigned long long>(of_all),
              static_cast<unsigned long long>(of_one),
              static_cast<unsigned long long>(of_none));
  if (absl::StrContains(compiled.object, "wgmma")) {
    ASSERT_GT(of_one, of_none);
    EXPECT_GT(static_cast<double>(of_all - of_none), times * static_cast<double>(of_one - of_none));
    EXPECT_GT(2 * (of_one - of_none), of_none) << "a block that leaves does nearly as much";
    return;
  }
  EXPECT_GT(static_cast<double>(of_all), times * static_cast<double>(of_one));
  // The test comes before all that it does not need.
  constexpr int64_t kLeavingMost = 14;  // instructions of a warp
  const int64_t warps = compiled.blocks[0] * compiled.blocks[1] * ((compiled.threads[0] + 31) / 32);
  EXPECT_LE(of_none, static_cast<uint64_t>(kLeavingMost * warps)) << compiled.object;
}

const EndCase kCases[] = {
    {.name = "rows"},
    {.name = "rows that no tile divides", .m = 450, .n = 72},
    {.name = "rows of each passage", .ends = Ends::kInnerRows, .passages = 2, .m = 512},
    {.name = "passages", .ends = Ends::kOuterRows, .passages = 5, .m = 128},
    {.name = "columns", .ends = Ends::kColumns, .m = 128, .n = 512},
    {.name = "a batch", .ends = Ends::kBatch, .batch = 6, .m = 128, .n = 64},
    {.name = "f32", .n = 64, .dtype = DType::kF32},
};

TEST(SymbolicProduct, BlocksOfMatrixUnitsBeyondTheEnd_Leave) {
  for (const EndCase& p : kCases) {
    SCOPED_TRACE(p.name);
    Graph g, guards;
    const UOp* const sink = KernelOf(g, p);
    const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
    const MmaTile tile{64, 64, p.dtype == DType::kF32 ? 16 : 32, 2, 2, 3};
    const Target target = CudaTarget("sm_80", kMultiprocessors);
    CompileOptions options{.target = target};
    options.opts = {{OptKind::kMma, kernel.groups[0].ranges[0], codegen::MmaAmount(tile)}};
    const auto plan = codegen::PlanMma(kernel, target, &*options.opts);
    ASSERT_TRUE(plan.ok() && plan->has_value()) << plan.status();
    const auto program = program::ExpandMma(kernel, **plan);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto compiled = CompileKernel(sink, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(UsesMatrixUnits(compiled->object));
    CheckEnds(p, *program, *compiled, sink, 3);
    if (HasFatalFailure()) return;
  }
}

TEST(SymbolicProduct, BlocksOfWarpgroupsBeyondTheEnd_Leave) {
  for (const EndCase& p : kCases)
    for (const int64_t split : {1, 2}) {
      SCOPED_TRACE(testing::Message() << p.name << " in parts " << split);
      Graph g, guards;
      const UOp* const sink = KernelOf(g, p);
      const codegen::LoopNest kernel =
          *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
      const auto product = codegen::FindMmaProduct(kernel);
      ASSERT_TRUE(product.ok()) << product.status();
      const program::HopperTile tile{.columns = 64, .stages = 2, .split = split};
      const auto plan = program::MakeHopperPlan(kernel, *product, tile);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const auto program = program::ExpandHopper(kernel, *plan);
      ASSERT_TRUE(program.ok()) << program.status();
      const Opt opt{OptKind::kWgmma, kernel.groups[0].ranges[0], program::WgmmaAmount(tile)};
      const auto compiled =
          CompileKernel(sink, {.target = CudaTarget("sm_90a", kMultiprocessors), .opts = {{opt}}});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      ASSERT_TRUE(absl::StrContains(compiled->object, "wgmma.mma_async"));
      CheckEnds(p, *program, *compiled, sink, 3);
      if (HasFatalFailure()) return;
      const std::string ptxas = FindPtxas();
      if (ptxas.empty()) continue;
      const auto stack_bytes = StackBytesOf(ptxas, compiled->object, "sm_90a");
      ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
      EXPECT_EQ(*stack_bytes, 0);
    }
}

// What is chosen has a tile for each block; others are refused, and so are sums that end early.
TEST(SymbolicProduct, TilesThatShareCopiesOrFollowEachOther_AreRefused) {
  const Target target = CudaTarget("sm_90a", kMultiprocessors);
  Graph g, guards;
  const UOp* const sink = KernelOf(g, {.name = "", .m = 8192, .n = 4096, .k = 1024});
  const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
  const auto mma = codegen::PlanMma(kernel, target, nullptr);
  ASSERT_TRUE(mma.ok() && mma->has_value());
  const auto plan = program::PlanHopper(kernel, target, nullptr, *mma);
  ASSERT_TRUE(plan.ok() && plan->has_value()) << plan.status();
  EXPECT_EQ((*plan)->tile.cluster, 1);
  EXPECT_EQ((*plan)->tile.persistent_blocks, 0);
  for (const program::HopperTile& tile :
       {program::HopperTile{.cluster = 2}, program::HopperTile{.persistent_blocks = 132}}) {
    const absl::Status status =
        program::MakeHopperPlan(kernel, (*plan)->product, tile).status();
    EXPECT_TRUE(absl::StrContains(status.message(), "a loop ends early")) << status;
  }
  Graph h, others;
  const codegen::LoopNest sums = *codegen::AnalyzeKernel(
      *proof::GuardUnproved(others, KernelOf(h, {.name = "", .ends = Ends::kSteps})));
  const auto product = codegen::FindMmaProduct(sums);
  ASSERT_TRUE(product.ok()) << product.status();
  const absl::Status status = program::HopperShapeOf(sums, *product).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "the sum ends early")) << status;
}

}  // namespace
}  // namespace outboard::test
