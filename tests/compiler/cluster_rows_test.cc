// Rows that no block keeps in registers, by the blocks of a cluster
// (docs/decisions/195-rows-by-clusters.md): what their kernels compute in the interpreter of
// programs and on the PTX machine, the sectors that it counts, the mistakes that both find, and
// what NVIDIA's assembler says of their registers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "compiler/program/spec.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "compiler/search/neighbours.h"
#include "tests/compiler/hopper_edit.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/row_kernels.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Fault;

Target Hopper() { return CudaTarget("sm_90a", 132); }
// Where two rows are as many as there is room for.
Target SmallHopper() { return CudaTarget("sm_90a", 4); }

struct Case {
  RowFunction function;
  DType dtype;
  int64_t columns;
  int64_t cluster, threads;  // of a block
  bool in_place = false;     // stored over what is read

  RowKernel kernel(int64_t rows) const { return {function, dtype, rows, columns, in_place}; }
};

std::string TextOf(const Case& c) {
  return absl::StrCat(Name(c.function), " of ", std::string(Name(c.dtype)), ", ", c.columns,
                      c.in_place ? ", in place" : "");
}

// 1,024 threads of each block, or 512 of twice as many where all of 32 values and a border, or what
// lies beside the row, do not fit 64 registers. GPT-2's vocabulary, and as it is padded; Llama 3's;
// powers of two, up to what eight blocks keep.
constexpr Case kCases[] = {
    {RowFunction::kSoftmax, DType::kF32, 50257, 2, 1024},
    {RowFunction::kSoftmax, DType::kF32, 50304, 2, 1024},
    {RowFunction::kSoftmax, DType::kF32, 65536, 2, 1024},
    {RowFunction::kSoftmax, DType::kF32, 128256, 8, 512},
    {RowFunction::kSoftmax, DType::kF32, 131072, 4, 1024},
    {RowFunction::kSoftmax, DType::kF32, 262144, 8, 1024},
    {RowFunction::kSoftmax, DType::kF32, 65535, 4, 1024},
    {RowFunction::kSoftmax, DType::kF32, 99999, 4, 1024},
    {RowFunction::kSoftmax, DType::kBF16, 50257, 2, 1024},
    {RowFunction::kSoftmax, DType::kF16, 50304, 4, 512},
    {RowFunction::kLogSoftmax, DType::kF32, 50257, 2, 1024},
    {RowFunction::kLogSoftmax, DType::kBF16, 128256, 8, 512},
    {RowFunction::kLayerNorm, DType::kF32, 50304, 2, 1024},
    {RowFunction::kLayerNorm, DType::kBF16, 65536, 2, 1024},
    {RowFunction::kLayerNorm, DType::kF32, 50257, 4, 512},
    {RowFunction::kLayerNorm, DType::kF16, 50257, 4, 512},
    {RowFunction::kRmsNorm, DType::kF32, 65536, 2, 1024},
    {RowFunction::kRmsNorm, DType::kBF16, 50257, 2, 1024},
    {RowFunction::kStatistics, DType::kF32, 50257, 2, 1024},
    {RowFunction::kStatistics, DType::kBF16, 128256, 8, 512},
    {RowFunction::kStatistics, DType::kF16, 262144, 8, 1024},
    {RowFunction::kSoftmax, DType::kF32, 50258, 2, 1024},
    {RowFunction::kSoftmax, DType::kBF16, 50258, 2, 1024},
    {RowFunction::kSoftmax, DType::kBF16, 50260, 2, 1024},
    {RowFunction::kSoftmax, DType::kF32, 30522, 1, 1024},  // BERT's vocabulary: one block
    {RowFunction::kSoftmax, DType::kBF16, 30522, 1, 1024},
    {RowFunction::kSoftmax, DType::kF32, 50257, 2, 1024, true},
    {RowFunction::kSoftmax, DType::kBF16, 50304, 4, 512, true},
};

std::string ChosenOpts(const RowKernel& kernel, const Target& target) {
  Graph g;
  return codegen::OptsToString(
      codegen::HeuristicOpts(*codegen::AnalyzeKernel(MakeRowKernel(g, kernel)), target));
}

TEST(ClusterRows, AreReadOnce) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(TextOf(c));
    Graph g;
    const RowKernel kernel = c.kernel(2);
    const UOp* const sink = MakeRowKernel(g, kernel);
    const auto compiled = CompileKernel(sink, {.target = SmallHopper()});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->threads[0], c.threads);
    EXPECT_EQ(compiled->blocks[0], kernel.rows * c.cluster);
    const Buffers start = RandomBuffers(sink, 1), want = RowsOf(kernel, start);
    Buffers first;
    for (const uint64_t seed : {1, 2}) {
      Buffers got = start;
      MachineCounts counts;
      const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, seed, nullptr, &counts);
      ASSERT_TRUE(ran.ok()) << ran;
      ExpectRows(kernel, got, want, ToleranceOf(c.dtype), c.function != RowFunction::kSoftmax);
      if (HasFatalFailure()) return;
      EXPECT_LE(SectorsOf(kernel, counts), 1.05);
      if (seed == 1)
        std::printf("%s: %.3f of the least sectors\n", TextOf(c).c_str(),
                    SectorsOf(kernel, counts));
      // The order of blocks and warps changes no bit.
      if (seed == 1) first = got;
      EXPECT_EQ(got[0], first[0]);
    }
  }
}

// The Opts of rows that nothing keeps: a list for so many columns that no memory has room for them.
std::vector<codegen::Opt> ThreadsAlone(const RowKernel& kernel) {
  RowKernel endless = kernel;
  endless.columns += int64_t{1} << 22;
  Graph g;
  return codegen::HeuristicOpts(*codegen::AnalyzeKernel(MakeRowKernel(g, endless)),
                                CudaTarget("sm_80", 132));
}

// What would be done with such rows: what the figures above are to be compared with.
TEST(ClusterRows, WithoutClustersOrMemoryRowsAreReadAgain) {
  for (const Case& c : kCases) {
    if (c.columns > 131072 || c.cluster == 1) continue;
    SCOPED_TRACE(TextOf(c));
    Graph g;
    const RowKernel kernel = c.kernel(2);
    const UOp* const sink = MakeRowKernel(g, kernel);
    const auto compiled =
        CompileKernel(sink, {.target = CudaTarget("sm_80", 132),
                             .opts = ThreadsAlone(kernel)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    Buffers got = RandomBuffers(sink, 1);
    MachineCounts counts;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
    ASSERT_TRUE(ran.ok()) << ran;
    std::printf("%s, again: %.3f of the least sectors\n", TextOf(c).c_str(),
                SectorsOf(kernel, counts));
    EXPECT_GE(SectorsOf(kernel, counts), 1.2);
  }
}

// Rows that begin anywhere, without ALIGN: warps read sectors of which they need a part.
TEST(ClusterRows, RowsThatBeginAnywhereAreAligned) {
  const RowKernel kernel = {RowFunction::kSoftmax, DType::kF32, 3, 10001};
  const auto sectors = [&](const std::string& opts) {
    Graph g;
    const UOp* const sink = MakeRowKernel(g, kernel);
    const auto compiled =
        CompileKernel(sink, {.target = Hopper(), .opts = *codegen::ParseOpts(opts)});
    OB_CHECK(compiled.ok());
    const Buffers start = RandomBuffers(sink, 1);
    Buffers got = start;
    MachineCounts counts;
    EXPECT_EQ(RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts), absl::OkStatus());
    ExpectRows(kernel, got, RowsOf(kernel, start), ToleranceOf(kernel.dtype), false);
    return SectorsOf(kernel, counts);
  };
  EXPECT_GE(sectors("LANE:1:32 WARP:1:32 SHARE:2:1024 UNROLL:2:10 SHARE:3:1024 UNROLL:3:10 "
                    "UPCAST:1:10 GRID:0:1"),
            1.15);
  EXPECT_LE(sectors("LANE:1:32 WARP:1:32 ALIGN:1:8 SHARE:2:1024 ALIGN:2:8 UNROLL:2:10 "
                    "SHARE:3:1024 ALIGN:3:8 UNROLL:3:10 UPCAST:1:10 GRID:0:1"),
            1.02);
  EXPECT_LE(sectors(ChosenOpts(kernel, Hopper())), 1.02);
  // Rows of an even length, in vectors that are known to be aligned.
  Graph g;
  const RowKernel even = {RowFunction::kSoftmax, DType::kF32, 3, 10002};
  const auto opts = codegen::ParseOpts(
      "VECTOR:1:2 LANE:1:32 WARP:1:16 ALIGN:1:8 VECTOR:3:2 SHARE:3:512 ALIGN:3:8 UNROLL:3:10 "
      "UPCAST:1:10 VECTOR:2:2 SHARE:2:512 ALIGN:2:8 UNROLL:2:10 GRID:0:1");
  const auto compiled =
      CompileKernel(MakeRowKernel(g, even), {.target = Hopper(), .opts = *opts});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_TRUE(absl::StrContains(compiled->object, "ld.global.nc.v2")) << compiled->object;
  EXPECT_TRUE(absl::StrContains(compiled->object, "st.global.v2"));
}

TEST(ClusterRows, AlignmentsThatAreLegal) {
  Graph g;
  const UOp* const sink = MakeRowKernel(g, {RowFunction::kSoftmax, DType::kF32, 8, 1001});
  const std::pair<const char*, bool> cases[] = {
      {"LANE:1:32 WARP:1:8 ALIGN:1:8 UPCAST:1:4 SHARE:2:256 SHARE:3:256 GRID:0:1", true},
      {"LANE:1:32 WARP:1:8 SHARE:2:256 ALIGN:2:4 UNROLL:2:4 SHARE:3:256 GRID:0:1", true},
      {"LANE:1:32 WARP:1:8 ALIGN:1:7 UPCAST:1:4 SHARE:2:256 SHARE:3:256 GRID:0:1", false},
      {"LANE:1:32 WARP:1:8 ALIGN:1:64 UPCAST:1:4 SHARE:2:256 SHARE:3:256 GRID:0:1", false},
      // In steps, and of no threads.
      {"LANE:1:32 WARP:1:8 ALIGN:1:8 UPCAST:1:2 SHARE:2:256 SHARE:3:256 GRID:0:1", false},
      {"LANE:1:32 WARP:1:8 UPCAST:1:4 ALIGN:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1", false},
      {"ALIGN:1:8", false},
      // Two rows of a thread, and a loop over rows inside of the one along them.
      {"UPCAST:0:2 LANE:1:32 WARP:1:8 ALIGN:1:8 UPCAST:1:4 SHARE:2:256 SHARE:3:256 GRID:0:1",
       false},
      {"LANE:1:32 WARP:1:8 ALIGN:1:8 UPCAST:1:4 SHARE:2:256 SHARE:3:256 SWAP:0:1", false},
  };
  for (const auto& [text, legal] : cases) {
    const auto planned =
        codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), *codegen::ParseOpts(text), Hopper());
    EXPECT_EQ(planned.ok(), legal) << text << ": " << planned.status();
  }
}

TEST(ClusterRows, FitTheRegistersOfTheirThreads) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  std::vector<Case> cases;
  for (const RowFunction function :
       {RowFunction::kSoftmax, RowFunction::kLogSoftmax, RowFunction::kLayerNorm,
        RowFunction::kRmsNorm, RowFunction::kStatistics})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const int64_t columns : {50257, 50258, 50304, 65536, 128256, 131072, 262144})
        for (const bool in_place : {false, true})
          if (!in_place || function != RowFunction::kStatistics)
            cases.push_back({function, dtype, columns, 0, 0, in_place});
  for (const Case& c : cases) {
    SCOPED_TRACE(TextOf(c));
    Graph g;
    const auto compiled = CompileKernel(MakeRowKernel(g, c.kernel(64)), {.target = Hopper()});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_TRUE(absl::StrContains(compiled->object, "barrier.cluster"));
    const auto assembled = AssembleKernel(ptxas, compiled->object, "sm_90a");
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    std::printf("%s: %lld registers, %lld bytes spilt, %lld blocks\n", TextOf(c).c_str(),
                static_cast<long long>(assembled->registers),
                static_cast<long long>(assembled->spill_bytes),
                static_cast<long long>(compiled->blocks[0] / 64));
    EXPECT_EQ(assembled->spill_bytes + assembled->stack_bytes, 0);
    EXPECT_LE(assembled->registers * compiled->threads[0], 65536);
  }
}

// ---- which kernels have clusters

TEST(ClusterRows, AreChosenWhereTheySaveReads) {
  const RowKernel row = {RowFunction::kSoftmax, DType::kF32, 64, 50304};
  EXPECT_TRUE(absl::StartsWith(ChosenOpts(row, Hopper()), "CLUSTER:0:2 "))
      << ChosenOpts(row, Hopper());
  EXPECT_EQ(ChosenOpts(row, CudaTarget("sm_90", 132)), ChosenOpts(row, Hopper()));
  for (const char* arch : {"sm_80", "sm_89"})
    EXPECT_FALSE(absl::StrContains(ChosenOpts(row, CudaTarget(arch, 132)), "CLUSTER")) << arch;
  EXPECT_FALSE(absl::StrContains(
      ChosenOpts({RowFunction::kSoftmax, DType::kF32, 64, 32768}, Hopper()), "CLUSTER"))
      << "one block keeps it";
  EXPECT_FALSE(absl::StrContains(
      ChosenOpts({RowFunction::kSoftmax, DType::kF32, 64, 262144}, Hopper()), "KEEP"))
      << "registers keep it";
  EXPECT_TRUE(absl::StrContains(
      ChosenOpts({RowFunction::kSoftmax, DType::kF32, 64, 262144 + 8}, Hopper()), "KEEP"))
      << "they do not";
  // As many threads for each of few rows, on more multiprocessors.
  constexpr std::pair<int64_t, int64_t> kBlocksOfRows[] = {
      {1, 8}, {16, 8}, {17, 4}, {33, 4}, {34, 2}};
  for (const auto& [rows, blocks] : kBlocksOfRows) {
    Graph g;
    const RowKernel few = {RowFunction::kSoftmax, DType::kF32, rows, 50257};
    const auto compiled = CompileKernel(MakeRowKernel(g, few), {.target = Hopper()});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->blocks[0], rows * blocks) << rows;
    EXPECT_EQ(compiled->threads[0], 2048 / blocks) << rows;
  }
}

TEST(ClusterRows, OptsThatAreLegal) {
  Graph g;
  const UOp* const sink = MakeRowKernel(g, {RowFunction::kSoftmax, DType::kF32, 8, 4096});
  const std::pair<const char*, bool> cases[] = {
      {"CLUSTER:0:2 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1", true},
      {"CLUSTER:0:8 LANE:1:32 WARP:1:32 SHARE:2:1024 SHARE:3:1024 GRID:0:1", true},
      {"CLUSTER:0:16 LANE:1:32 WARP:1:64 SHARE:2:2048 SHARE:3:2048 GRID:0:1", false},
      {"CLUSTER:0:3 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1", false},
      {"LANE:1:32 CLUSTER:0:2 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1", false},
      // Fewer than a warpgroup a block.
      {"CLUSTER:0:4 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1", false},
      // All blocks would compute a sum.
      {"CLUSTER:0:2 LANE:1:32 WARP:1:8 SHARE:2:256 GRID:0:1", false},
      // Each block would copy the rows that all of them have, in a reduction and as they lie.
      {"CLUSTER:0:2 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1 LOCAL:1:0", false},
      // Row by row in one block: who leaves the next row's results may overwrite this one's.
      {"CLUSTER:0:2 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256", false},
  };
  for (const auto& [text, legal] : cases) {
    const auto planned =
        codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), *codegen::ParseOpts(text), Hopper());
    EXPECT_EQ(planned.ok(), legal) << text << ": " << planned.status();
    EXPECT_FALSE(codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), *codegen::ParseOpts(text),
                                    CudaTarget("sm_89", 132))
                     .ok());
  }
}

TEST(ClusterRows, TheSearchFindsThem) {
  Graph g;
  const UOp* const sink = MakeRowKernel(g, {RowFunction::kSoftmax, DType::kF32, 8, 16384});
  const auto one = *codegen::ParseOpts(
      "LANE:1:32 WARP:1:8 SHARE:2:256 UNROLL:2:64 SHARE:3:256 UNROLL:3:64 UPCAST:1:64 GRID:0:1");
  const auto two = *codegen::ParseOpts(
      "CLUSTER:0:2 LANE:1:32 WARP:1:16 SHARE:2:512 UNROLL:2:32 SHARE:3:512 UNROLL:3:32 "
      "UPCAST:1:32 GRID:0:1");
  const auto has = [&](const std::vector<codegen::Opt>& from, const std::string& wanted) {
    const std::vector<search::Neighbour> all = search::Neighbours(sink, from, Hopper());
    return std::any_of(all.begin(), all.end(), [&](const search::Neighbour& n) {
      return absl::StrContains(codegen::OptsToString(n.opts), wanted);
    });
  };
  EXPECT_TRUE(has(one, "CLUSTER:0:2"));
  EXPECT_TRUE(has(two, "CLUSTER:0:4"));
  EXPECT_FALSE(has(two, "CLUSTER:0:1 "));
}

// ---- small ones in the interpreter

// A softmax by two or four blocks of 128 threads; rows begin anywhere.
struct Small {
  RowKernel kernel;
  const char* opts;
};
const Small kSmall[] = {
    {{RowFunction::kSoftmax, DType::kF32, 3, 1000},
     "CLUSTER:0:2 VECTOR:1:4 LANE:1:32 WARP:1:8 VECTOR:2:4 SHARE:2:256 VECTOR:3:4 SHARE:3:256 "
     "GRID:0:1"},
    {{RowFunction::kSoftmax, DType::kF32, 3, 1001},
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 ALIGN:1:8 SHARE:2:256 ALIGN:2:8 UNROLL:2:4 SHARE:3:256 "
     "ALIGN:3:8 UNROLL:3:4 UPCAST:1:4 GRID:0:1"},
    {{RowFunction::kLayerNorm, DType::kBF16, 3, 1501},
     "CLUSTER:0:4 LANE:1:32 WARP:1:16 ALIGN:1:16 SHARE:2:512 ALIGN:2:16 UNROLL:2:3 SHARE:3:512 "
     "ALIGN:3:16 UNROLL:3:3 UPCAST:1:3 GRID:0:1"},
    // Short enough for a walk of the kernel.
    {{RowFunction::kSoftmax, DType::kF32, 2, 301},
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 ALIGN:1:8 UPCAST:1:2 SHARE:2:256 ALIGN:2:8 UNROLL:2:2 "
     "SHARE:3:256 UNROLL:3:2 GRID:0:1"},
    {{RowFunction::kLogSoftmax, DType::kF32, 2, 300, true},
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 UPCAST:1:2 SHARE:2:256 UNROLL:2:2 SHARE:3:256 UNROLL:3:2 "
     "GRID:0:1"},
    {{RowFunction::kStatistics, DType::kF32, 2, 3000},
     "CLUSTER:0:8 VECTOR:1:4 SHARE:1:1024 VECTOR:2:4 SHARE:2:1024 GRID:0:1"},
};

TEST(ClusterRows, AsInterpretedAfterEachPass) {
  for (const Small& s : kSmall) {
    SCOPED_TRACE(s.opts);
    Graph g;
    const UOp* const sink = MakeRowKernel(g, s.kernel);
    std::vector<program::PassResult> passes;
    const auto program = ProgramOf(sink, s.opts, Hopper(), &passes);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_GT(program->cluster, 1);
    const Buffers start = RandomBuffers(sink, 1), want = RowsOf(s.kernel, start);
    const bool absolute = s.kernel.function != RowFunction::kSoftmax;
    if (s.kernel.columns < 400) {
      // The same kernel with memory of its own.
      RowKernel apart = s.kernel;
      apart.in_place = false;
      Buffers walked = {start[0], start.back()};
      ASSERT_EQ(WalkKernel(MakeRowKernel(g, apart), walked), absl::OkStatus());
      ExpectRows(s.kernel, walked, want, ToleranceOf(s.kernel.dtype), absolute);
    }
    for (const program::PassResult& pass : passes) {
      SCOPED_TRACE(pass.pass);
      Buffers got = start;
      const program::RunReport report = program::Interpret(pass.program, got, {}, {.seed = 3});
      ASSERT_TRUE(report.ok()) << report.message;
      ExpectRows(s.kernel, got, want, ToleranceOf(s.kernel.dtype), absolute);
      if (HasFatalFailure()) return;
    }
    const auto compiled =
        (*render::MakePtxRenderer(Hopper()))->Render(*program, "k");
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    Buffers got = start;
    const absl::Status ran = RunOnPtxMachine(*compiled, got);
    ASSERT_TRUE(ran.ok()) << ran;
    ExpectRows(s.kernel, got, want, ToleranceOf(s.kernel.dtype), absolute);
  }
}

// Any number of blocks, threads and values of a thread, all of a row at once or in steps.
std::string RandomClusterOpts(const RowKernel& kernel, std::mt19937& random) {
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  int64_t lanes = int64_t{1} << pick(3), cluster = 0, threads = 0;
  while (kernel.columns % lanes != 0) lanes /= 2;
  do {
    cluster = int64_t{2} << pick(3);
    threads = cluster * (int64_t{128} << pick(2));
  } while (threads / 2 * lanes >= kernel.columns);  // more than half of them have a part
  const int64_t steps = (kernel.columns / lanes + threads - 1) / threads;
  const bool aligned = pick(2) == 0;
  const bool stored = kernel.function != RowFunction::kStatistics;
  std::string opts = absl::StrCat("CLUSTER:0:", cluster);
  const auto axis = [&](int64_t number, bool reduced) {
    if (lanes > 1) absl::StrAppend(&opts, " VECTOR:", number, ":", lanes);
    if (reduced) {
      absl::StrAppend(&opts, " SHARE:", number, ":", threads);
    } else {
      absl::StrAppend(&opts, " LANE:", number, ":32 WARP:", number, ":", threads / 32);
    }
    int64_t count = steps;
    if (aligned) {
      absl::StrAppend(&opts, " ALIGN:", number, ":8");
      count = (kernel.columns + 8 - lanes + threads * lanes - 1) / (threads * lanes);
    } else if (pick(3) == 0) {
      count = 1 + pick(steps);
    }
    if (count > 1) absl::StrAppend(&opts, reduced ? " UNROLL:" : " UPCAST:", number, ":", count);
    if (reduced && count > 2 && pick(2) == 0) absl::StrAppend(&opts, " GROUP:", number, ":2");
  };
  if (stored) axis(1, false);
  const int64_t first = stored ? 2 : 1;
  axis(first, true);
  if (kernel.function != RowFunction::kRmsNorm) axis(first + 1, true);
  return absl::StrCat(opts, " GRID:0:1");
}

TEST(ClusterRows, RandomOptsComputeTheSame) {
  constexpr RowFunction kFunctions[] = {RowFunction::kSoftmax, RowFunction::kLogSoftmax,
                                        RowFunction::kLayerNorm, RowFunction::kRmsNorm,
                                        RowFunction::kStatistics};
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    RowKernel kernel = {kFunctions[random() % 5], kTypes[random() % 3],
                        2 + static_cast<int64_t>(random() % 3),
                        600 + static_cast<int64_t>(random() % 4000)};
    kernel.in_place = kernel.function != RowFunction::kStatistics && random() % 2 == 0;
    const std::string opts = RandomClusterOpts(kernel, random);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Name(kernel.function), " ", kernel.rows, " x ",
                              kernel.columns, kernel.in_place ? " in place " : " ", opts));
    Graph g;
    const UOp* const sink = MakeRowKernel(g, kernel);
    const auto program = ProgramOf(sink, opts, Hopper());
    ASSERT_TRUE(program.ok()) << program.status();
    const Buffers start = RandomBuffers(sink, seed), want = RowsOf(kernel, start);
    const bool absolute = kernel.function != RowFunction::kSoftmax;
    Buffers got = start;
    const program::RunReport report = program::Interpret(*program, got, {}, {.seed = seed});
    ASSERT_TRUE(report.ok()) << report.message;
    ExpectRows(kernel, got, want, ToleranceOf(kernel.dtype), absolute);
    if (HasFatalFailure()) return;
    const auto compiled =
        (*render::MakePtxRenderer(Hopper()))->Render(*program, "k");
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    got = start;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, seed);
    ASSERT_TRUE(ran.ok()) << ran;
    ExpectRows(kernel, got, want, ToleranceOf(kernel.dtype), absolute);
    if (HasFatalFailure()) return;
  }
}

// ---- planted mistakes

struct Mistake {
  const char* what;
  ProgramEdit edit;
  std::vector<Fault> faults;
};

// CLUSTERSYNCs: after the maximum, after the sum, and at the end.
std::vector<Mistake> Mistakes() {
  return {{"blocks read what others have not left",
           Changing(Code::kClusterSync, 0, Drop),
           {Fault::kRace, Fault::kUninitialised}},
          {"the same for the second reduction",
           Changing(Code::kClusterSync, 1, Drop),
           {Fault::kRace, Fault::kUninitialised}},
          {"a block leaves while another reads its memory",
           Changing(Code::kClusterSync, 2, Drop),
           {Fault::kMisuse}},
          {"a block beyond the cluster",
           Changing(Code::kClusterLoad, 1,
                    [](program::ProgramBuilder& b, program::Instruction& i) {
                      i.src[2] = b.Int(2);
                      return true;
                    }),
           {Fault::kOutOfRange}}};
}

TEST(ClusterRows, PlantedMistakesAreFound) {
  Graph g;
  const UOp* const sink = MakeRowKernel(g, kSmall[0].kernel);
  const auto program = ProgramOf(sink, kSmall[0].opts, Hopper());
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(std::count_if(program->code.begin(), program->code.end(),
                          [](const auto& i) { return i.code == Code::kClusterSync; }),
            3);
  for (const Mistake& mistake : Mistakes()) {
    SCOPED_TRACE(mistake.what);
    const program::Program wrong = Edited(*program, mistake.edit);
    ASSERT_NE(wrong, *program);
    // That a block leaves early shows in some orders of threads.
    bool found = false;
    for (uint32_t seed = 1; seed <= 20 && !found; ++seed) {
      Buffers buffers = RandomBuffers(sink, 1);
      const program::RunReport report = program::Interpret(wrong, buffers, {}, {.seed = seed});
      found = !report.ok();
      if (!found) continue;
      EXPECT_NE(std::find(mistake.faults.begin(), mistake.faults.end(), report.fault),
                mistake.faults.end())
          << report.message;
    }
    EXPECT_TRUE(found);
  }
  const absl::Status status =
      program::CheckProgram(Edited(*program, Changing(Code::kClusterSync, 2, Drop)), "test");
  EXPECT_TRUE(absl::StrContains(status.message(), "no CLUSTERSYNC comes after")) << status;
}

// The text of the kernel without its `nth` barrier of the cluster.
std::string WithoutBarrier(std::string ptx, int nth) {
  size_t at = 0;
  for (int i = 0; (at = ptx.find("barrier.cluster.arrive", at)) != std::string::npos; ++i, ++at) {
    if (i < nth) continue;
    const size_t wait = ptx.find("barrier.cluster.wait", at);
    return ptx.erase(at, ptx.find(';', wait) + 1 - at);
  }
  return "";
}

TEST(ClusterRows, TheMachineFindsEachBarrierThatIsMissing) {
  Graph g;
  const RowKernel kernel = {RowFunction::kSoftmax, DType::kF32, 2, 50304};
  const UOp* const sink = MakeRowKernel(g, kernel);
  const auto compiled = CompileKernel(sink, {.target = SmallHopper()});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const char* const reports[] = {"race|never-written", "race|never-written",
                                 "its block has left|the block leaves, and nothing says"};
  for (int nth = 0; nth < 3; ++nth) {
    SCOPED_TRACE(nth);
    CompiledKernel wrong = *compiled;
    wrong.object = WithoutBarrier(wrong.object, nth);
    ASSERT_NE(wrong.object, "");
    Buffers buffers = RandomBuffers(sink, 1);
    const absl::Status ran = RunOnPtxMachine(wrong, buffers);
    ASSERT_FALSE(ran.ok());
    bool expected = false;
    for (const absl::string_view kind : absl::StrSplit(reports[nth], '|'))
      expected = expected || absl::StrContains(ran.message(), kind);
    EXPECT_TRUE(expected) << ran;
  }
  EXPECT_EQ(WithoutBarrier(compiled->object, 3), "");
}

}  // namespace
}  // namespace outboard::test
