// Kernels of clusters (CLUSTER, docs/decisions/195-rows-by-clusters.md) beside what else a launch
// may be: with rows and columns that end at a VAR, in several copies, in a grid that is divided
// into rows. And rows that a cluster does not copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/program/interpret.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/copies_check.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/row_kernels.h"

namespace outboard::test {
namespace {

constexpr const char* kArchs[] = {"sm_90", "sm_90a"};

// ---- ends at VARs

// A softmax of the first `rows` rows and `columns` columns, which VARs 0 and 1 say if they may be
// less than there are.
struct Ends {
  const char* what;
  bool rows, columns;
  const char* opts;  // "": those that are chosen
  int64_t row_count = 3, column_count = 600;
};
constexpr Ends kEnds[] = {
    {"rows", true, false,
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 UPCAST:1:3 SHARE:2:256 UNROLL:2:3 SHARE:3:256 UNROLL:3:3 "
     "GRID:0:1"},
    {"rows, aligned", true, false,
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 ALIGN:1:8 UPCAST:1:3 SHARE:2:256 ALIGN:2:8 UNROLL:2:3 "
     "SHARE:3:256 ALIGN:3:8 UNROLL:3:3 GRID:0:1",
     3, 601},
    {"columns in steps", false, true,
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1"},
    {"columns written out", false, true,
     "CLUSTER:0:4 VECTOR:1:2 LANE:1:32 WARP:1:16 VECTOR:2:2 SHARE:2:512 VECTOR:3:2 SHARE:3:512 "
     "GRID:0:1"},
    {"both", true, true,
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 UPCAST:1:2 SHARE:2:256 UNROLL:2:2 SHARE:3:256 GRID:0:1"},
    {"rows, as chosen", true, false, "", 2, 50304},
    {"both, as chosen", true, true, "", 2, 50304},
};

const UOp* RangeUpTo(Graph& g, int64_t id, int64_t extent, RangeKind kind, std::optional<int> var) {
  if (!var) return test::Range(g, id, extent, kind);
  return g.MakeChecked(Op::kRange, DType::kI64, {Var(g, *var, 0, extent)},
                       {id, extent, static_cast<int64_t>(kind)});
}

const UOp* SoftmaxUpTo(Graph& g, const Ends& e) {
  const int64_t rows = e.row_count, columns = e.column_count;
  const auto end = [](bool ends, int var) { return ends ? std::optional(var) : std::nullopt; };
  const auto along = [&](int64_t id, RangeKind kind) {
    return RangeUpTo(g, id, columns, kind, end(e.columns, 1));
  };
  const UOp* const i = RangeUpTo(g, 0, rows, RangeKind::kOutput, end(e.rows, 0));
  const UOp* const j = along(1, RangeKind::kOutput);
  const UOp *const k = along(2, RangeKind::kReduce), *const l = along(3, RangeKind::kReduce);
  const auto x = [&](const UOp* at) {
    return LoadAt(g, 1, DType::kF32, rows * columns, RowMajor(g, {i, at}, {rows, columns}));
  };
  // The loop runs the whole step that contains its end; values beyond the end add nothing.
  const auto below = [&](const UOp* at, const UOp* value, double otherwise) {
    return e.columns ? Where(g, Alu(g, Op::kCmpLt, at, Var(g, 1, 0, columns)), value,
                             ConstFloat(g, DType::kF32, otherwise))
                     : value;
  };
  const UOp* const minus = Alu(g, Op::kNeg, Fold(g, Op::kMax, below(k, x(k), -INFINITY), {k}));
  const auto exponential = [&](const UOp* at) { return Alu(g, Op::kExp, Add(g, x(at), minus)); };
  const UOp* const sum = Fold(g, Op::kAdd, below(l, exponential(l), 0), {l});
  return Sink(g, {StoreAt(g, 0, rows * columns, RowMajor(g, {i, j}, {rows, columns}),
                          Alu(g, Op::kFDiv, exponential(j), sum))});
}

float At(const std::string& bytes, int64_t element) {
  float value = 0;
  std::memcpy(&value, bytes.data() + element * 4, sizeof value);
  return value;
}

// Within the ends what a softmax is; below them nothing is written.
void ExpectSoftmax(const Ends& e, const Buffers& start, const Buffers& got, int64_t rows,
                   int64_t columns) {
  for (int64_t row = 0; row < e.row_count; ++row) {
    const int64_t first = row * e.column_count;
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < columns; ++c) most = std::max(most, double{At(start[1], first + c)});
    for (int64_t c = 0; c < columns; ++c) sum += std::exp(At(start[1], first + c) - most);
    // A tile that begins below an end is written as a whole.
    if (row >= rows) {
      ASSERT_EQ(
          got[0].substr(static_cast<size_t>(first) * 4, static_cast<size_t>(e.column_count) * 4),
          start[0].substr(static_cast<size_t>(first) * 4, static_cast<size_t>(e.column_count) * 4))
          << "row " << row;
      continue;
    }
    for (int64_t c = 0; c < columns; ++c) {
      const double want = std::exp(At(start[1], first + c) - most) / sum;
      ASSERT_NEAR(At(got[0], first + c), want, 1e-4 * want) << "row " << row << " column " << c;
    }
  }
}

TEST(ClusterLaunch, UpToVars_ComputesWhatLiesBelowThem) {
  for (const char* const arch : kArchs)
    for (const Ends& e : kEnds) {
      SCOPED_TRACE(absl::StrCat(e.what, ", ", arch));
      Graph g;
      const UOp* const sink = SoftmaxUpTo(g, e);
      const Target target = CudaTarget(arch, 4);
      const std::string opts = *e.opts != '\0' ? e.opts
                                               : codegen::OptsToString(codegen::HeuristicOpts(
                                                     *codegen::AnalyzeKernel(sink), target));
      ASSERT_TRUE(absl::StrContains(opts, "CLUSTER")) << opts;
      const auto program = ProgramOf(sink, opts, target);
      ASSERT_TRUE(program.ok()) << program.status();
      const auto compiled = (*render::MakePtxRenderer(target))->Render(*program, "k");
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const Buffers start = RandomBuffers(sink, 1);
      for (const int64_t rows : {int64_t{0}, int64_t{1}, e.row_count}) {
        if (!e.rows && rows != e.row_count) continue;
        for (const int64_t columns : {int64_t{1}, e.column_count / 2 + 1, e.column_count}) {
          if (!e.columns && columns != e.column_count) continue;
          SCOPED_TRACE(absl::StrCat(rows, " x ", columns));
          const int64_t vars[] = {rows, columns};
          Buffers got = start;
          const absl::Status ran = RunOnPtxMachine(*compiled, got, vars);
          ASSERT_TRUE(ran.ok()) << ran;
          ExpectSoftmax(e, start, got, rows, columns);
          if (HasFatalFailure()) return;
          if (e.column_count > 1000) continue;
          got = start;
          const program::RunReport report = program::Interpret(*program, got, vars, {.seed = 3});
          ASSERT_TRUE(report.ok()) << report.message;
          ExpectSoftmax(e, start, got, rows, columns);
          if (HasFatalFailure()) return;
        }
      }
    }
}

// The row is in registers, in those of a cluster, or also in the memory of a block; where it ends
// before what there is room for, no sector beyond is touched.
TEST(ClusterLaunch, ColumnsUpToAVar_AreReadOnce) {
  struct Room {
    const char* arch;
    int64_t columns;
    const char* kept_by;  // in the list of Opts; "": registers of one block
  };
  constexpr Room kRooms[] = {{"sm_80", 4096, ""},
                             {"sm_89", 30000, ""},
                             {"sm_80", 50304, "KEEP"},
                             {"sm_90", 50304, "CLUSTER"},
                             {"sm_90a", 300000, "KEEP"}};
  for (const auto& [arch, room, kept_by] : kRooms) {
    SCOPED_TRACE(absl::StrCat(arch, ", ", room));
    Graph g;
    const Ends e = {"columns", false, true, "", 2, room};
    const UOp* const sink = SoftmaxUpTo(g, e);
    const Target target = CudaTarget(arch, 4);
    const std::string opts = codegen::OptsToString(
        codegen::HeuristicOpts(*codegen::AnalyzeKernel(sink), target));
    EXPECT_TRUE(absl::StrContains(opts, kept_by)) << opts;
    const auto compiled = CompileKernel(sink, {.target = target});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const Buffers start = RandomBuffers(sink, 1);
    for (const int64_t columns : {int64_t{1}, room * 2 / 5 + 1, room}) {
      SCOPED_TRACE(columns);
      const int64_t vars[] = {e.row_count, columns};
      Buffers got = start;
      MachineCounts counts;
      const absl::Status ran = RunOnPtxMachine(*compiled, got, vars, 1, nullptr, &counts);
      ASSERT_TRUE(ran.ok()) << ran;
      ExpectSoftmax(e, start, got, e.row_count, columns);
      if (HasFatalFailure()) return;
      // Read and written; and VARs, by each warp.
      const auto least = static_cast<double>(2 * e.row_count * ((columns + 7) / 8));
      const auto of_vars = static_cast<double>(compiled->blocks[0] * compiled->threads[0] / 32);
      EXPECT_LE(static_cast<double>(counts.global_sectors), 1.01 * least + 2 * of_vars);
      std::printf("%s, %lld of %lld columns: %.3f of the least sectors\n", arch,
                  static_cast<long long>(columns), static_cast<long long>(room),
                  (static_cast<double>(counts.global_sectors) - of_vars) / least);
    }
  }
}

// ---- copies, and grids in rows

struct Launch {
  int copies = 1;
  std::optional<int64_t> columns_max;  // of the grid
};

TEST(ClusterLaunch, InCopiesAndDividedGrids_IsTheWalk) {
  constexpr const char* kOpts[] = {
      "CLUSTER:0:2 LANE:1:32 WARP:1:8 UPCAST:1:2 SHARE:2:256 UNROLL:2:2 SHARE:3:256 UNROLL:3:2 "
      "GRID:0:1",
      "CLUSTER:0:2 LANE:1:32 WARP:1:8 ALIGN:1:8 UPCAST:1:2 SHARE:2:256 ALIGN:2:8 UNROLL:2:2 "
      "SHARE:3:256 ALIGN:3:8 UNROLL:3:2 GRID:0:1 KEEP:0:1"};
  int divided = 0, behind = 0;
  for (const char* const arch : kArchs)
    for (const char* const opts : kOpts)
      for (const Launch& launch :
           {Launch{3, std::nullopt}, Launch{1, 4}, Launch{1, 2}, Launch{2, 5}}) {
        SCOPED_TRACE(absl::StrCat(opts, ", ", arch, ", ", launch.copies, " copies, columns ",
                                  launch.columns_max.value_or(0)));
        Graph g, copies;
        const UOp* const sink = MakeRowKernel(g, {RowFunction::kSoftmax, DType::kF32, 3, 301});
        const auto compiled = CompileKernel(WithCopies(copies, sink, launch.copies),
                                            {.target = CudaTarget(arch, 132),
                                             .opts = *codegen::ParseOpts(opts),
                                             .grid_columns_max = launch.columns_max});
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        ASSERT_TRUE(absl::StrContains(compiled->object, ".reqnctapercluster 2"));
        ASSERT_EQ(compiled->copies, launch.copies);
        ASSERT_EQ(compiled->blocks[2], launch.copies);
        ASSERT_EQ(compiled->blocks[0] % 2, 0);
        divided += compiled->blocks[1] > 1;
        behind += compiled->blocks[0] * compiled->blocks[1] * launch.copies > compiled->tasks;
        ExpectEachCopyIsTheWalk(sink, *compiled, 1, 1e-4);
        if (HasFatalFailure()) return;
      }
  EXPECT_GE(divided, 12);
  EXPECT_GE(behind, 4);
}

// ---- rows that are not copied

// Maximum and sum of exponentials of rows of numbers in blocks of 34 bytes, 32 of them behind two
// that say more: numbers that are read one by one.
const UOp* PackedStatistics(Graph& g, int64_t terms) {
  constexpr int64_t kRows = 64;
  const int64_t row_bytes = terms / 32 * 34;
  const UOp* const i = test::Range(g, 0, kRows);
  const auto number = [&](const UOp* k) {
    const UOp* const block =
        Add(g, Mul(g, i, ConstIndex(g, row_bytes)),
            Mul(g, Alu(g, Op::kIDiv, k, ConstIndex(g, 32)), ConstIndex(g, 34)));
    const UOp* const at =
        Add(g, Add(g, block, Alu(g, Op::kMod, k, ConstIndex(g, 32))), ConstIndex(g, 2));
    return Cast(g, LoadAt(g, 1, DType::kU8, kRows * row_bytes, at), DType::kF32);
  };
  const UOp *const k = ReduceRange(g, 1, terms), *const l = ReduceRange(g, 2, terms);
  const UOp* const most = Fold(g, Op::kMax, number(k), {k});
  const UOp* const sum =
      Fold(g, Op::kAdd, Alu(g, Op::kExp, Add(g, number(l), Alu(g, Op::kNeg, most))), {l});
  return Sink(g, {StoreAt(g, 0, kRows, i, Add(g, most, Alu(g, Op::kLog, sum)))});
}

// Of one block the row is copied; each block of a cluster would copy what all of them have.
TEST(ClusterLaunch, RowsThatOneBlockWouldCopy_AreNotCopiedByEachBlock) {
  const auto chosen = [](int64_t terms) {
    Graph g;
    return codegen::OptsToString(codegen::HeuristicOpts(
        *codegen::AnalyzeKernel(PackedStatistics(g, terms)), CudaTarget("sm_90", 132)));
  };
  const std::string by_one = chosen(8192), by_cluster = chosen(40960);
  EXPECT_TRUE(absl::StrContains(by_one, "LOCAL")) << by_one;
  EXPECT_FALSE(absl::StrContains(by_one, "CLUSTER")) << by_one;
  EXPECT_TRUE(absl::StrContains(by_cluster, "CLUSTER")) << by_cluster;
  EXPECT_FALSE(absl::StrContains(by_cluster, "LOCAL")) << by_cluster;
  // And a list that says so is refused, not run.
  Graph g;
  const absl::Status status =
      codegen::ApplyOpts(*codegen::AnalyzeKernel(PackedStatistics(g, 40960)),
                         *codegen::ParseOpts(absl::StrCat(by_cluster, " LOCAL:0:0")),
                         CudaTarget("sm_90", 132))
          .status();
  EXPECT_TRUE(absl::StrContains(status.message(), "of a cluster are not copied")) << status;
}

}  // namespace
}  // namespace outboard::test
