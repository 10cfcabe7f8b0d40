// Grids of more blocks than their first axis may have (docs/decisions/197-divided-grids.md): blocks
// lie in rows, and those behind the last one leave at once. A lower limit divides grids that the
// PTX machine can run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/program/program.h"
#include "compiler/render/launch_shape.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/copies_check.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_random.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Grid;
using program::Program;
using program::ProgramBuilder;

constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90", "sm_90a"};
constexpr double kTolerance = 3e-5;  // sums in another order

int64_t BlocksOf(const CompiledKernel& kernel) { return kernel.blocks[0] * kernel.blocks[1]; }

Program OfBlocks(int64_t blocks, int64_t cluster = 1) {
  ProgramBuilder b;
  b.Special(Grid::kBlock, blocks);
  Program program = b.Take(0);
  program.cluster = cluster;
  return program;
}

TEST(GridOf, Blocks_LieInAsFewEvenRowsAsTheLimitAllows) {
  struct Case {
    int64_t blocks, cluster, columns_max, columns, rows;
  };
  constexpr int64_t kMost = render::kGridColumnsMax;
  for (const Case& c :
       {Case{1, 1, 1, 1, 1}, Case{7, 1, 7, 7, 1}, Case{8, 1, 7, 4, 2}, Case{15, 1, 7, 5, 3},
        Case{13, 1, 4, 4, 4}, Case{17, 1, 4, 4, 5}, Case{12, 2, 5, 4, 3}, Case{14, 2, 5, 4, 4},
        Case{10, 2, 9, 6, 2}, Case{8, 4, 3, 4, 2}, Case{kMost, 1, kMost, kMost, 1},
        Case{kMost + 1, 1, kMost, int64_t{1} << 30, 2},
        Case{kMost + 1, 2, kMost, int64_t{1} << 30, 2}}) {
    SCOPED_TRACE(testing::Message() << c.blocks << " blocks in rows of " << c.columns_max);
    const render::GridShape grid = render::GridOf(OfBlocks(c.blocks, c.cluster), c.columns_max);
    EXPECT_EQ(grid.columns, c.columns);
    EXPECT_EQ(grid.rows, c.rows);
    EXPECT_GE(grid.columns * grid.rows, c.blocks);
    EXPECT_EQ(grid.columns % c.cluster, 0);
  }
}

// What each of `copies` computes in a grid of so many columns, against a walk.
void ExpectIsTheWalk(const UOp* sink, int64_t columns_max, int copies, const std::string& arch,
                     bool no_opt, uint32_t seed, CompiledKernel* out) {
  SCOPED_TRACE(testing::Message() << "at most " << columns_max << " columns, " << copies
                                  << " copies for " << arch << ", seed " << seed);
  Graph graph;
  const auto kernel = CompileKernel(
      WithCopies(graph, sink, copies),
      {.target = CudaTarget(arch, 132), .no_opt = no_opt, .grid_columns_max = columns_max});
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  *out = *kernel;
  ASSERT_LE(kernel->blocks[0], columns_max);
  ASSERT_GE(BlocksOf(*kernel) * copies, kernel->tasks);
  ASSERT_EQ(kernel->blocks[2], copies);
  ASSERT_EQ(kernel->copies, copies);
  ExpectEachCopyIsTheWalk(sink, *kernel, seed, kTolerance);
}

TEST(DividedGrid, OfRandomKernels_IsTheWalk) {
  int divided = 0, behind = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    Graph g;
    CompiledKernel kernel;
    const int64_t columns_max = 1 + seed % 5;
    const int copies = seed % 3 == 0 ? 2 : 1;
    ExpectIsTheWalk(RandomKernel(g, seed), columns_max, copies, kArchs[seed % 4], seed % 7 == 0,
                    seed, &kernel);
    if (HasFatalFailure()) return;
    if (kernel.tasks == 0 || kernel.blocks[1] == 1) continue;
    ++divided;
    if (BlocksOf(kernel) * copies > kernel.tasks) ++behind;
  }
  std::printf("%d kernels have rows, %d of them blocks behind the last one\n", divided, behind);
  EXPECT_GT(divided, 20);
  EXPECT_GT(behind, 5);
}

// y[i] = the sum of row i of x, for i < n: a block that leaves because of the grid, and one that
// does because of a VAR.
TEST(DividedGrid, UpToAVar_WritesRowsBelowIt) {
  constexpr int64_t kRows = 600, kColumns = 40;
  Graph g;
  const UOp* const i = g.MakeChecked(Op::kRange, DType::kI64, {Var(g, 0, 0, kRows)},
                                     {0, kRows, static_cast<int64_t>(RangeKind::kOutput)});
  const UOp* const k = ReduceRange(g, 1, kColumns);
  const UOp* const x =
      LoadAt(g, 1, DType::kF32, kRows * kColumns, RowMajor(g, {i, k}, {kRows, kColumns}));
  const UOp* const sink = Sink(g, {StoreAt(g, 0, kRows, i, Fold(g, Op::kAdd, x, {k}))});
  const auto compile = [&](std::optional<int64_t> columns_max) {
    return *CompileKernel(sink,
                          {.target = CudaTarget("sm_90", 132), .grid_columns_max = columns_max});
  };
  const CompiledKernel whole = compile(std::nullopt);
  ASSERT_EQ(whole.blocks[1], 1);
  ASSERT_GT(whole.blocks[0], 7);
  const CompiledKernel divided = compile(7);
  ASSERT_GT(divided.blocks[1], 1);
  ASSERT_EQ(divided.tasks, whole.tasks);
  const Buffers start = RandomBuffers(sink, 1);
  for (const int64_t n : {int64_t{0}, int64_t{1}, kRows / 2 + 1, kRows}) {
    SCOPED_TRACE(n);
    const int64_t vars[] = {n};
    Buffers want = start, got = start;
    ASSERT_EQ(RunOnPtxMachine(whole, want, vars), absl::OkStatus());
    ASSERT_EQ(RunOnPtxMachine(divided, got, vars), absl::OkStatus());
    EXPECT_EQ(got, want);
  }
}

// Blocks of a cluster stay together, and wait for each other.
TEST(DividedGrid, OfProductsByWarpgroups_IsTheSum) {
  int divided = 0, clusters = 0;
  for (const HopperCase& test : HopperCases()) {
    SCOPED_TRACE(test.name);
    const auto program = MakeHopperProduct(test.product, test.tile, test.epilogue);
    ASSERT_TRUE(program.ok()) << program.status();
    const int64_t blocks = program->Extent(Grid::kBlock);
    const int64_t columns_max = std::max(blocks / 2, int64_t{1});
    const auto renderer = *render::MakePtxRenderer(CudaTarget("sm_90a", 132), columns_max);
    const auto kernel = renderer->Render(*program, "k");
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    ASSERT_EQ(kernel->blocks[0] % program->cluster, 0);
    if (kernel->blocks[1] > 1) ++(program->cluster > 1 ? clusters : divided);
    Buffers buffers = InputsOf(test);
    const absl::Status ran = RunOnPtxMachine(*kernel, buffers);
    ASSERT_TRUE(ran.ok()) << ran << kernel->object.substr(0, 3000);
    ASSERT_EQ(DifferenceOf(test, buffers), "");
  }
  std::printf("%d products and %d of clusters have rows\n", divided, clusters);
  EXPECT_GT(divided, 2);
  EXPECT_GT(clusters, 0);
}

// y[i] = x[i] + x[i] of so many elements.
const UOp* Doubled(Graph& g, int64_t elements) {
  const UOp* const i = Range(g, 0, elements);
  const UOp* const x = LoadAt(g, 1, DType::kBF16, elements, i);
  return Sink(g, {StoreAt(g, 0, elements, i, Add(g, x, x))});
}

TEST(DividedGrid, BeyondTheLimitOfDevices_IsCompiledAndAssembled) {
  constexpr int64_t kElements = (int64_t{1} << 44) + 4096;
  for (const char* const arch : kArchs) {
    SCOPED_TRACE(arch);
    Graph g;
    const auto kernel = CompileKernel(Doubled(g, kElements), {.target = CudaTarget(arch, 132),
                                                              .opts = std::vector<codegen::Opt>{}});
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    ASSERT_GT(kernel->tasks, render::kGridColumnsMax);
    EXPECT_LE(kernel->blocks[0], render::kGridColumnsMax);
    EXPECT_GE(BlocksOf(*kernel), kernel->tasks);
    EXPECT_LT(BlocksOf(*kernel), kernel->tasks + kernel->blocks[1]);
    EXPECT_TRUE(absl::StrContains(kernel->object, "%ctaid.y")) << kernel->object;
    const std::string ptxas = FindPtxas();
    if (ptxas.empty()) continue;
    const auto assembled = AssembleKernel(ptxas, kernel->object, arch);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->stack_bytes, 0);
  }
}

TEST(DividedGrid, WithinTheLimit_HasNoRows) {
  Graph g;
  const auto kernel = CompileKernel(Doubled(g, 1 << 20), {.target = CudaTarget("sm_90", 132)});
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->blocks[1], 1);
  EXPECT_FALSE(absl::StrContains(kernel->object, "%ctaid.y")) << kernel->object;
}

TEST(DividedGrid, MoreThanRowsHold_IsRefused) {
  ProgramBuilder b;
  const auto out = b.Buffer(DType::kI64, 0, 1);
  const auto block = b.Special(Grid::kBlock, int64_t{1} << 48);
  b.Store(out, b.Int(0), block);
  const auto renderer = *render::MakePtxRenderer(CudaTarget("sm_90", 132));
  EXPECT_EQ(renderer->Render(b.Take(1), "k").status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::test
