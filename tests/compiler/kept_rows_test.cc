// Long rows that threads keep in registers and in the memory of their block (KEEP), and operands of
// aligned rows that a block copies (LOCAL; docs/decisions/201-rows-in-memory.md): what the kernels
// compute in the interpreter of programs and on the PTX machine, the sectors that it counts, which
// lists are legal, and what NVIDIA's assembler says of their registers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/program/interpret.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/hopper_edit.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/row_kernels.h"

namespace outboard::test {
namespace {

Target Gpu() { return CudaTarget("sm_90", 132); }

// A list in which loads have names: the first one of the buffer.
std::string Numbered(const std::string& opts, const UOp* sink, const RowKernel& kernel) {
  const codegen::LoopNest nest = *codegen::AnalyzeKernel(sink);
  const std::vector<const UOp*> loads = codegen::LoadsOf(nest);
  const auto number = [&](int64_t slot) {
    const auto load =
        std::ranges::find_if(loads, [&](const UOp* l) { return GlobalOfAccess(l).slot() == slot; });
    return absl::StrCat(":", load - loads.begin(), ":");
  };
  const int64_t x = kernel.in_place ? 0 : 1;
  return absl::StrReplaceAll(
      opts, {{":x:", number(x)}, {":scale:", number(x + 1)}, {":bias:", number(x + 2)}});
}

// Two rows are as many as there is room for.
constexpr int kMultiprocessors = 4;

struct Case {
  const char* arch;
  RowFunction function;
  DType dtype;
  int64_t columns;
  int64_t blocks;  // of a row
  bool in_place = false;
  int64_t threads = 1024;
  double most = 1.05;  // of the least sectors

  RowKernel kernel(int64_t rows) const { return {function, dtype, rows, columns, in_place}; }
};

std::string TextOf(const Case& c) {
  return absl::StrCat(c.arch, ", ", Name(c.function), " of ", std::string(Name(c.dtype)), ", ",
                      c.columns, c.in_place ? ", in place" : "");
}

// What 32,768 registers of a block, or of each of eight, do not keep: up to what its memory does.
constexpr Case kCases[] = {
    {"sm_80", RowFunction::kSoftmax, DType::kF32, 50257, 1},
    {"sm_80", RowFunction::kSoftmax, DType::kF32, 73728, 1},
    {"sm_80", RowFunction::kSoftmax, DType::kBF16, 50257, 1},
    {"sm_80", RowFunction::kSoftmax, DType::kBF16, 114688, 1},
    {"sm_80", RowFunction::kLogSoftmax, DType::kF32, 50304, 1},
    {"sm_80", RowFunction::kLayerNorm, DType::kF32, 50304, 1, false, 512},
    {"sm_80", RowFunction::kRmsNorm, DType::kBF16, 65536, 1},
    {"sm_80", RowFunction::kStatistics, DType::kF32, 50257, 1},
    {"sm_80", RowFunction::kSoftmax, DType::kF32, 50257, 1, true},
    {"sm_80", RowFunction::kSoftmax, DType::kBF16, 50304, 1, true},
    {"sm_89", RowFunction::kSoftmax, DType::kF32, 50257, 1},
    {"sm_89", RowFunction::kSoftmax, DType::kF32, 57344, 1},
    {"sm_89", RowFunction::kStatistics, DType::kBF16, 81920, 1},
    {"sm_90", RowFunction::kSoftmax, DType::kF32, 262152, 8},
    {"sm_90a", RowFunction::kSoftmax, DType::kF32, 524288, 8},
    {"sm_90a", RowFunction::kLogSoftmax, DType::kBF16, 300001, 8},
    // Of odd lengths, whose vectors of one number are more than are written out.
    // There is no room for copies of their operands, which begin elsewhere in a sector.
    {"sm_80", RowFunction::kLayerNorm, DType::kF32, 70001, 1, false, 512, 1.07},
    {"sm_80", RowFunction::kLayerNorm, DType::kBF16, 100001, 1, false, 512, 1.13},
    {"sm_89", RowFunction::kLayerNorm, DType::kF16, 80001, 1, true, 512, 1.13},
};

// The longest of clusters, of all lengths and of odd ones.
constexpr Case kLongest[] = {
    {"sm_90", RowFunction::kSoftmax, DType::kF32, 720896, 8},
    {"sm_90a", RowFunction::kSoftmax, DType::kBF16, 1179648, 8},
    {"sm_90a", RowFunction::kLogSoftmax, DType::kBF16, 1179633, 8},
    {"sm_90", RowFunction::kLayerNorm, DType::kF32, 720889, 8, false, 512},
};

void ExpectReadOnce(const Case& c, int64_t rows) {
  SCOPED_TRACE(TextOf(c));
  Graph g;
  const RowKernel kernel = c.kernel(rows);
  const UOp* const sink = MakeRowKernel(g, kernel);
  const Target target = CudaTarget(c.arch, kMultiprocessors);
  const auto compiled = CompileKernel(sink, {.target = target});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->threads[0], c.threads);
  EXPECT_EQ(compiled->blocks[0], kernel.rows * c.blocks);
  EXPECT_GT(compiled->shared_bytes, 8 << 10);
  EXPECT_LE(compiled->shared_bytes, target.shared_bytes_max);
  const Buffers start = RandomBuffers(sink, 1);
  Buffers got = start;
  MachineCounts counts;
  const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectRows(kernel, got, RowsOf(kernel, start), ToleranceOf(c.dtype),
             c.function != RowFunction::kSoftmax);
  if (testing::Test::HasFatalFailure()) return;
  EXPECT_LE(SectorsOf(kernel, counts), c.most);
  EXPECT_EQ(counts.shared_wavefronts, counts.shared_accesses) << "banks are waited for";
  std::printf("%s: %.3f of the least sectors, %lld bytes of a block, %zu of PTX\n",
              TextOf(c).c_str(), SectorsOf(kernel, counts),
              static_cast<long long>(compiled->shared_bytes), compiled->object.size());
}

TEST(KeptRows, AreReadOnce) {
  for (const Case& c : kCases) {
    ExpectReadOnce(c, 2);
    if (HasFatalFailure()) return;
  }
}

// A single row, which begins with a sector.
TEST(KeptRows, OfTheLongestClusters_AreReadOnce) {
  for (const Case& c : kLongest) {
    ExpectReadOnce(c, 1);
    if (HasFatalFailure()) return;
  }
}

std::string ChosenOpts(const RowKernel& kernel, const Target& target) {
  Graph g;
  return codegen::OptsToString(
      codegen::HeuristicOpts(*codegen::AnalyzeKernel(MakeRowKernel(g, kernel)), target));
}

// 163, 99 and 227 KiB, less what reductions are joined in.
TEST(KeptRows, AreChosenUpToTheMemoryOfABlock) {
  struct Limit {
    const char* arch;
    DType dtype;
    int64_t columns;  // the most that are kept
  };
  constexpr Limit kLimits[] = {{"sm_80", DType::kF32, 73728},  {"sm_80", DType::kBF16, 114688},
                               {"sm_89", DType::kF32, 57344},  {"sm_89", DType::kBF16, 81920},
                               {"sm_90", DType::kF32, 720896}, {"sm_90a", DType::kF32, 720896}};
  for (const Limit& limit : kLimits) {
    SCOPED_TRACE(absl::StrCat(limit.arch, " ", std::string(Name(limit.dtype))));
    const Target target = CudaTarget(limit.arch, 132);
    const auto is_kept = [&](int64_t columns) {
      return absl::StrContains(
          ChosenOpts({RowFunction::kSoftmax, limit.dtype, 64, columns}, target), "KEEP");
    };
    const int64_t registers = 32768 * target.cluster_blocks_max();
    EXPECT_FALSE(is_kept(registers));
    EXPECT_TRUE(is_kept(registers + 8));
    EXPECT_TRUE(is_kept(limit.columns));
    EXPECT_FALSE(is_kept(limit.columns + 8));
  }
}

// As few values of a thread in registers as the memory of the block leaves: half, three quarters or
// seven eighths of 32, or all. With 32, GPT-2's loss spilled 24 bytes on sm_89.
TEST(KeptRows, HaveAsFewRegistersAsTheMemoryAllows) {
  for (const auto& [arch, columns, vectors] :
       {std::tuple{"sm_80", 50'304, "4"}, {"sm_89", 40'960, "4"}, {"sm_89", 49'152, "6"},
        {"sm_89", 50'304, "7"}, {"sm_89", 57'344, "8"}}) {
    SCOPED_TRACE(absl::StrCat(arch, " ", columns));
    const std::string opts = ChosenOpts({RowFunction::kSoftmax, DType::kF32, 64, columns},
                                        CudaTarget(arch, 132));
    EXPECT_THAT(opts, testing::ContainsRegex(absl::StrCat("KEEP:[0-9x]+:", vectors)));
  }
}

// An odd layer norm without clusters: two blocks of 512 threads with a part of their rows in
// memory, where both have room, else one of 1,024 with all of it in registers.
TEST(KeptRows, OfOddNorms_AreInMemoryWhereTwoBlocksHaveRoom) {
  struct Norm {
    const char* arch;
    DType dtype;
    int64_t columns;
    bool kept;
  };
  for (const auto& [arch, dtype, columns, kept] :
       {Norm{"sm_80", DType::kF32, 16385, true}, Norm{"sm_80", DType::kF32, 32761, true},
        Norm{"sm_89", DType::kF32, 24577, true}, Norm{"sm_89", DType::kF32, 30001, false},
        Norm{"sm_89", DType::kBF16, 32753, true}}) {
    SCOPED_TRACE(absl::StrCat(arch, " ", std::string(Name(dtype)), " ", columns));
    const std::string opts =
        ChosenOpts({RowFunction::kLayerNorm, dtype, 64, columns}, CudaTarget(arch, 132));
    EXPECT_EQ(absl::StrContains(opts, "KEEP"), kept) << opts;
    EXPECT_EQ(absl::StrContains(opts, ":1024 "), !kept) << opts;
  }
}

// Vectors of one number reach the largest tile of a thread before they fill the memory.
TEST(KeptRows, WhatIsChosenForOddRowsOfAllLengths_IsLegal) {
  for (const char* const arch : {"sm_80", "sm_89", "sm_90"})
    for (const RowFunction function : {RowFunction::kSoftmax, RowFunction::kLayerNorm})
      for (const DType dtype : {DType::kF32, DType::kBF16})
        for (const int64_t columns : {30'001, 65'521, 65'531, 70'001, 73'721, 114'671, 524'281,
                                      720'897, 1'048'577, 1'179'633}) {
          SCOPED_TRACE(absl::StrCat(arch, " ", std::string(Name(dtype)), " ", columns,
                                    function == RowFunction::kSoftmax ? " softmax" : " norm"));
          const Target target = CudaTarget(arch, 132);
          Graph g;
          auto nest = codegen::AnalyzeKernel(MakeRowKernel(g, {function, dtype, 64, columns}));
          ASSERT_TRUE(nest.ok()) << nest.status();
          const std::vector<codegen::Opt> opts = codegen::HeuristicOpts(*nest, target);
          EXPECT_FALSE(opts.empty());
          const auto planned = codegen::ApplyOpts(*std::move(nest), opts, target);
          EXPECT_TRUE(planned.ok()) << planned.status() << " " << codegen::OptsToString(opts);
        }
}

TEST(KeptRows, FitTheRegistersOfTheirThreads) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kLongest), std::end(kLongest));
  for (const Case& c : cases) {
    SCOPED_TRACE(TextOf(c));
    Graph g;
    const auto compiled =
        CompileKernel(MakeRowKernel(g, c.kernel(64)), {.target = CudaTarget(c.arch, 132)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto assembled = AssembleKernel(ptxas, compiled->object, c.arch);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    std::printf("%s: %lld registers, %lld bytes spilt\n", TextOf(c).c_str(),
                static_cast<long long>(assembled->registers),
                static_cast<long long>(assembled->spill_bytes));
    EXPECT_EQ(assembled->spill_bytes + assembled->stack_bytes, 0);
    EXPECT_LE(assembled->registers * compiled->threads[0], kCudaRegisters);
  }
}

TEST(KeptRows, OptsThatAreLegal_AndWhyOthersAreNot) {
  struct Legal {
    const char *opts, *says;  // "": it is legal
  };
  constexpr Legal kLegal[] = {
      {"LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
       "KEEP:x:3",
       ""},
      {"LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
       "KEEP:x:8",
       "registers hold all"},
      {"LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
       "KEEP:x:0",
       "of no vector"},
      {"LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
       "KEEP:9:3",
       "loads"},
      {"LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
       "KEEP:x:3 KEEP:x:3",
       "kept already"},
      // In steps; and in other threads where it is stored.
      {"LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:4 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
       "KEEP:x:3",
       "the same elements"},
      {"LANE:1:32 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 KEEP:x:3",
       "the same elements"},
  };
  Graph g;
  const RowKernel kernel = {RowFunction::kSoftmax, DType::kF32, 8, 1000};
  const UOp* const sink = MakeRowKernel(g, kernel);
  for (const auto& [opts, says] : kLegal) {
    const absl::Status status = ProgramOf(sink, Numbered(opts, sink, kernel), Gpu()).status();
    EXPECT_EQ(status.ok(), *says == '\0') << opts << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), says)) << opts << ": " << status;
  }
  // More than a block has.
  const RowKernel wide = {RowFunction::kSoftmax, DType::kF32, 8, 60000};
  const UOp* const wide_sink = MakeRowKernel(g, wide);
  const absl::Status status =
      ProgramOf(wide_sink,
                Numbered("LANE:1:32 WARP:1:32 SHARE:2:1024 UNROLL:2:59 SHARE:3:1024 UNROLL:3:59 "
                         "UPCAST:1:59 GRID:0:1 KEEP:x:32",
                         wide_sink, wide),
                CudaTarget("sm_89", 132))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

// ---- small ones in the interpreter

struct Small {
  RowKernel kernel;
  const char* opts;
};
const Small kSmall[] = {
    {{RowFunction::kSoftmax, DType::kF32, 3, 1000},
     "VECTOR:1:4 LANE:1:32 WARP:1:2 VECTOR:2:4 SHARE:2:64 UNROLL:2:4 VECTOR:3:4 SHARE:3:64 "
     "UNROLL:3:4 UPCAST:1:4 GRID:0:1 KEEP:x:1"},
    {{RowFunction::kSoftmax, DType::kF32, 3, 1001},
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 ALIGN:1:8 SHARE:2:256 ALIGN:2:8 UNROLL:2:4 SHARE:3:256 "
     "ALIGN:3:8 UNROLL:3:4 UPCAST:1:4 GRID:0:1 KEEP:x:2"},
    {{RowFunction::kLogSoftmax, DType::kBF16, 3, 700, true},
     "VECTOR:1:2 LANE:1:32 WARP:1:2 VECTOR:2:2 SHARE:2:64 UNROLL:2:6 VECTOR:3:2 SHARE:3:64 "
     "UNROLL:3:6 UPCAST:1:6 GRID:0:1 KEEP:x:4"},
    // Scales and biases beside rows that begin anywhere.
    {{RowFunction::kLayerNorm, DType::kBF16, 3, 1501},
     "CLUSTER:0:4 LANE:1:32 WARP:1:16 ALIGN:1:16 SHARE:2:512 ALIGN:2:16 UNROLL:2:3 SHARE:3:512 "
     "ALIGN:3:16 UNROLL:3:3 UPCAST:1:3 GRID:0:1 LOCAL:scale:0 LOCAL:bias:0"},
    {{RowFunction::kRmsNorm, DType::kF32, 3, 1002},
     "VECTOR:1:2 LANE:1:32 WARP:1:4 ALIGN:1:8 VECTOR:2:2 SHARE:2:128 ALIGN:2:8 UNROLL:2:4 "
     "UPCAST:1:4 GRID:0:1 LOCAL:scale:0 KEEP:x:3"},
    // Steps of a loop, instead of more vectors than are written out.
    {{RowFunction::kSoftmax, DType::kF32, 2, 9501},
     "LANE:1:32 WARP:1:2 ALIGN:1:8 SHARE:2:64 ALIGN:2:8 UNROLL:2:149 SHARE:3:64 ALIGN:3:8 "
     "UNROLL:3:149 UPCAST:1:149 GRID:0:1 KEEP:x:3"},
    {{RowFunction::kLayerNorm, DType::kBF16, 2, 19100, true},
     "VECTOR:1:2 LANE:1:32 WARP:1:2 VECTOR:2:2 SHARE:2:64 UNROLL:2:150 VECTOR:3:2 SHARE:3:64 "
     "UNROLL:3:150 UPCAST:1:150 GRID:0:1 KEEP:x:5"},
    {{RowFunction::kStatistics, DType::kF32, 2, 9000},
     "SHARE:1:64 UNROLL:1:141 SHARE:2:64 UNROLL:2:141 GRID:0:1 KEEP:x:2"},
    {{RowFunction::kRmsNorm, DType::kF32, 2, 33501},
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 ALIGN:1:8 SHARE:2:256 ALIGN:2:8 UNROLL:2:131 UPCAST:1:131 "
     "GRID:0:1 KEEP:x:7"},
    // One vector of a thread, which is in no tile.
    {{RowFunction::kRmsNorm, DType::kF32, 3, 101},
     "LANE:1:32 WARP:1:4 ALIGN:1:8 SHARE:2:128 ALIGN:2:8 GRID:0:1 LOCAL:scale:0"},
};

void ExpectComputes(const RowKernel& kernel, const std::string& opts, const Target& target,
                    uint32_t seed, bool each_pass) {
  Graph g;
  const UOp* const sink = MakeRowKernel(g, kernel);
  std::vector<program::PassResult> passes;
  const auto program = ProgramOf(sink, Numbered(opts, sink, kernel), target, &passes);
  ASSERT_TRUE(program.ok()) << program.status();
  const Buffers start = RandomBuffers(sink, seed), want = RowsOf(kernel, start);
  const bool absolute = kernel.function != RowFunction::kSoftmax;
  if (!each_pass) passes.erase(passes.begin(), passes.end() - 1);
  for (const program::PassResult& pass : passes) {
    SCOPED_TRACE(pass.pass);
    Buffers got = start;
    const program::RunReport report = program::Interpret(pass.program, got, {}, {.seed = seed});
    ASSERT_TRUE(report.ok()) << report.message;
    ExpectRows(kernel, got, want, ToleranceOf(kernel.dtype), absolute);
    if (testing::Test::HasFatalFailure()) return;
  }
  const auto compiled = (*render::MakePtxRenderer(target))->Render(*program, "k");
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  Buffers got = start;
  const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, seed);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectRows(kernel, got, want, ToleranceOf(kernel.dtype), absolute);
}

TEST(KeptRows, AsInterpretedAfterEachPass) {
  for (const Small& s : kSmall) {
    SCOPED_TRACE(s.opts);
    ExpectComputes(s.kernel, s.opts, Gpu(), 3, /*each_pass=*/true);
    if (HasFatalFailure()) return;
  }
}

// Scales and biases begin with a sector, and rows of an odd length do not.
TEST(KeptRows, OperandsOfAlignedRows_AreReadInWholeSectors) {
  constexpr RowKernel kKernels[] = {{RowFunction::kLayerNorm, DType::kF32, 2, 50257},
                                    {RowFunction::kLayerNorm, DType::kF16, 2, 50257},
                                    {RowFunction::kRmsNorm, DType::kBF16, 2, 50257}};
  for (const RowKernel& kernel : kKernels) {
    SCOPED_TRACE(absl::StrCat(Name(kernel.function), " of ", std::string(Name(kernel.dtype))));
    Graph g;
    const UOp* const sink = MakeRowKernel(g, kernel);
    const Target target = CudaTarget("sm_90a", kMultiprocessors);
    const auto sectors = [&](const std::vector<codegen::Opt>& opts) {
      const auto compiled = CompileKernel(sink, {.target = target, .opts = opts});
      OB_CHECK_OK(compiled.status());
      Buffers buffers = RandomBuffers(sink, 1);
      MachineCounts counts;
      OB_CHECK_OK(RunOnPtxMachine(*compiled, buffers, {}, 1, nullptr, &counts));
      return SectorsOf(kernel, counts);
    };
    std::vector<codegen::Opt> opts =
        codegen::HeuristicOpts(*codegen::AnalyzeKernel(sink), target);
    const double with = sectors(opts);
    std::erase_if(opts, [](const auto& opt) { return opt.kind == codegen::OptKind::kLocal; });
    const double without = sectors(opts);
    std::printf("%s of %s: %.3f of the least sectors, %.3f without copies\n",
                Name(kernel.function), std::string(Name(kernel.dtype)).c_str(), with, without);
    EXPECT_LE(with, 1.03);
    EXPECT_GE(without, 1.05);
  }
}

// Of threads that divide no reduction nothing else waits for all of them.
TEST(KeptRows, OperandsWaitForTheirCopies) {
  const RowKernel kernel = {RowFunction::kRmsNorm, DType::kF32, 2, 101};
  const std::string opts = "LANE:1:32 WARP:1:4 ALIGN:1:8 GRID:0:1 LOCAL:scale:0";
  ExpectComputes(kernel, opts, Gpu(), 1, /*each_pass=*/true);
  Graph g;
  const UOp* const sink = MakeRowKernel(g, kernel);
  const auto program = ProgramOf(sink, Numbered(opts, sink, kernel), Gpu());
  ASSERT_TRUE(program.ok()) << program.status();
  const program::Program wrong = Edited(*program, Changing(program::Code::kBarrier, 0, Drop));
  ASSERT_NE(wrong, *program);
  bool found = false;
  for (uint32_t seed = 1; seed <= 20 && !found; ++seed) {
    Buffers buffers = RandomBuffers(sink, 1);
    const program::RunReport report = program::Interpret(wrong, buffers, {}, {.seed = seed});
    found = report.fault == program::Fault::kRace || report.fault == program::Fault::kUninitialised;
  }
  EXPECT_TRUE(found);
}

// Any number of blocks, threads and values of a thread in registers; operands copied or not.
std::string RandomKeptOpts(const RowKernel& kernel, std::mt19937& random) {
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  int64_t lanes = int64_t{1} << pick(3);
  while (kernel.columns % lanes != 0) lanes /= 2;
  const int64_t cluster = int64_t{1} << pick(2);
  const int64_t of_block = cluster > 1 ? int64_t{128} << pick(2) : int64_t{64} << pick(3);
  const int64_t threads = cluster * of_block;
  const bool aligned = lanes < 8 && pick(2) == 0;
  const int64_t span = kernel.columns + (aligned ? 8 - lanes : 0);
  const int64_t count = (span + threads * lanes - 1) / (threads * lanes);
  std::string opts = cluster > 1 ? absl::StrCat("CLUSTER:0:", cluster) : "";
  const auto axis = [&](int64_t number, bool reduced) {
    if (lanes > 1) absl::StrAppend(&opts, " VECTOR:", number, ":", lanes);
    if (reduced) {
      absl::StrAppend(&opts, " SHARE:", number, ":", threads);
    } else {
      absl::StrAppend(&opts, " LANE:", number, ":32 WARP:", number, ":", threads / 32);
    }
    if (aligned) absl::StrAppend(&opts, " ALIGN:", number, ":8");
    absl::StrAppend(&opts, reduced ? " UNROLL:" : " UPCAST:", number, ":", count);
  };
  axis(1, false);
  axis(2, true);
  if (kernel.function != RowFunction::kRmsNorm) axis(3, true);
  absl::StrAppend(&opts, " GRID:0:1");
  const bool norm =
      kernel.function == RowFunction::kLayerNorm || kernel.function == RowFunction::kRmsNorm;
  if (aligned && norm && pick(3) != 0) absl::StrAppend(&opts, " LOCAL:scale:0");
  // Not all that would be too many registers; of more vectors than are written out the others run
  // in a loop.
  constexpr int64_t kRegistersMax = 64;
  return absl::StrCat(opts, " KEEP:x:", 1 + pick(std::min(count - 1, kRegistersMax / lanes)));
}

TEST(KeptRows, RandomOptsComputeTheSame) {
  constexpr RowFunction kFunctions[] = {RowFunction::kSoftmax, RowFunction::kLogSoftmax,
                                        RowFunction::kLayerNorm, RowFunction::kRmsNorm};
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    RowKernel kernel = {kFunctions[random() % 4], kTypes[random() % 3],
                        2 + static_cast<int64_t>(random() % 2),
                        4200 + static_cast<int64_t>(random() % 7000)};
    kernel.in_place = random() % 2 == 0;
    const std::string opts = RandomKeptOpts(kernel, random);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Name(kernel.function), " ", kernel.rows, " x ",
                              kernel.columns, kernel.in_place ? " in place " : " ", opts));
    ExpectComputes(kernel, opts, Gpu(), seed, /*each_pass=*/false);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace outboard::test
