// Grids as PTX: blocks beyond the end that a VAR says leave at once.
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = 132;

const UOp* RangeTo(Graph& g, int64_t id, int64_t extent, const UOp* end) {
  return g.MakeChecked(Op::kRange, DType::kI64, {end},
                       {id, extent, static_cast<int64_t>(RangeKind::kOutput)});
}

// y[i] = 2 * x[i] for i < n.
const UOp* Doubled(Graph& g, int64_t extent, const UOp* n) {
  const UOp* const i = RangeTo(g, 0, extent, n);
  const UOp* const x = LoadAt(g, 1, DType::kF32, extent, i);
  return Sink(g, {StoreAt(g, 0, extent, i, Add(g, x, x))});
}
// y[i] = the sum of row i of x, for i < n.
constexpr int64_t kColumns = 96;
const UOp* RowSums(Graph& g, int64_t extent, const UOp* n) {
  const UOp* const i = RangeTo(g, 0, extent, n);
  const UOp* const k = ReduceRange(g, 1, kColumns);
  const UOp* const x =
      LoadAt(g, 1, DType::kF32, extent * kColumns, RowMajor(g, {i, k}, {extent, kColumns}));
  return Sink(g, {StoreAt(g, 0, extent, i, Fold(g, Op::kAdd, x, {k}))});
}
// y[i, j] = x[j, i] for i < n.
constexpr int64_t kWide = 40;
const UOp* Turned(Graph& g, int64_t extent, const UOp* n) {
  const UOp *const i = RangeTo(g, 0, extent, n), *const j = Range(g, 1, kWide);
  const UOp* const x =
      LoadAt(g, 1, DType::kF32, extent * kWide, RowMajor(g, {j, i}, {kWide, extent}));
  return Sink(g, {StoreAt(g, 0, extent * kWide, RowMajor(g, {i, j}, {extent, kWide}), x)});
}

struct VarKernel {
  const char* name;
  const UOp* (*make)(Graph&, int64_t, const UOp*);
  int64_t extent;
};
constexpr VarKernel kVarKernels[] = {
    {"doubled", Doubled, 1 << 17}, {"row sums", RowSums, 4096}, {"turned", Turned, 4096}};

// By the heuristic's Opts, and in plain threads.
const std::optional<std::vector<codegen::Opt>> kWays[] = {std::nullopt,
                                                          std::vector<codegen::Opt>{}};

TEST(Grid, BlocksBeyondAVar_LeaveEarly) {
  for (const VarKernel& kernel : kVarKernels)
    for (const auto& opts : kWays) {
      SCOPED_TRACE(testing::Message() << kernel.name << (opts ? " in threads" : ""));
      Graph g;
      const UOp* const sink = kernel.make(g, kernel.extent, Var(g, 0, 0, kernel.extent));
      const auto compiled =
          CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors), .opts = opts});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      ASSERT_GE(compiled->blocks[0], 16);
      const Buffers start = RandomBuffers(sink, 1);
      // Warp instructions, by how much of the grid has anything to do.
      const auto counted = [&](int64_t n) {
        Buffers got = start;
        const int64_t vars[] = {n};
        MachineCounts counts;
        const absl::Status ran = RunOnPtxMachine(*compiled, got, vars, 1, nullptr, &counts);
        EXPECT_TRUE(ran.ok()) << ran << compiled->object;
        return static_cast<double>(counts.warp_instructions);
      };
      const double all = counted(kernel.extent), some = counted(kernel.extent / 16),
                   none = counted(0);
      const double warps = static_cast<double>(compiled->blocks[0] * compiled->threads[0]) / 32;
      std::printf(
          "%s%s: %.1f instructions a warp, %.1f with a sixteenth of the grid, %.1f with none\n",
          kernel.name, opts ? " in threads" : "", all / warps, some / warps, none / warps);
      // What a warp does until it knows that it has nothing to do.
      constexpr double kUntilLeft = 40;
      EXPECT_LE(none / warps, kUntilLeft) << compiled->object;
      EXPECT_LE(some, none + all / 8) << compiled->object;
      EXPECT_GT(all, 1.5 * none) << compiled->object;
    }
}

}  // namespace
}  // namespace outboard::test
