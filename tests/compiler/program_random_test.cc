// Random kernels as programs: lowered in tiles and in threads, after every pass, interpreted in
// several orders, and as OpenCL where the machine has it, against a walk of their expression and
// today's x86 code. OUTBOARD_KERNELS=n makes n kernels, OUTBOARD_SEED=n repeats kernel n alone,
// OUTBOARD_OPENCL_KERNELS=n has so many of them run as OpenCL (all with OUTBOARD_KERNELS).
#include <cstdio>
#include <cstdlib>
#include <random>

#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "compiler/proof/in_range.h"
#include "compiler/render/opencl_c.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_random.h"
#include "tests/compiler/kernel_random_opts.h"
#include "tests/compiler/opencl_run.h"

namespace outboard::test {
namespace {

using codegen::LoopNest;
using program::ExpandPlan;
using program::ExpandThreads;
using program::PassResult;
using program::Program;
using program::ThreadMapping;

constexpr double kTolerance = 2e-3;
constexpr int kOpenClBatch = 24;

uint32_t Setting(const char* name, uint32_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? static_cast<uint32_t>(std::atoi(text)) : otherwise;
}

void ExpectRuns(const UOp* sink, const Program& program, const Buffers& start, const Buffers& want,
                uint32_t seed, const std::string& what) {
  Buffers got = start;
  const program::RunReport report = program::Interpret(program, got, {}, {.seed = seed});
  ASSERT_TRUE(report.ok()) << what << ": " << report.message << "\n" << ToString(program);
  ExpectClose(sink, got, want, kTolerance);
  if (::testing::Test::HasFatalFailure()) ADD_FAILURE() << what << "\n" << ToString(program);
}

void ExpectPassesRun(const UOp* sink, const absl::StatusOr<Program>& program,
                     const std::vector<PassResult>& passes, bool each, const Buffers& start,
                     const Buffers& want, uint32_t seed, const std::string& what) {
  ASSERT_TRUE(program.ok()) << what << ": " << program.status() << "\n"
                            << (passes.empty() ? "" : ToString(passes.back().program));
  if (each)
    for (const PassResult& pass : passes) {
      ExpectRuns(sink, pass.program, start, want, seed, what + " after " + pass.pass);
      if (::testing::Test::HasFatalFailure()) return;
    }
  ExpectRuns(sink, *program, start, want, seed, what);
}

ThreadMapping RandomMapping(const LoopNest& kernel, std::mt19937& random) {
  ThreadMapping mapping;
  mapping.threads = int64_t{1} << random() % 7;
  mapping.block_ranges = static_cast<int>(random() % (kernel.parallel_count + 1));
  mapping.stride = random() % 2 == 0;
  mapping.together = random() % 2 == 0;
  return mapping;
}

struct Counts {
  int64_t kernels = 0, plans = 0, opencl = 0;
};

// The kernel's program for OpenCL.
Program CheckPrograms(const UOp* sink, const Buffers& start, const Buffers& want, uint32_t seed,
                      Counts& counts) {
  Graph guards;
  const UOp* const guarded = *proof::GuardUnproved(guards, sink);
  const auto kernel = [&] { return *codegen::AnalyzeKernel(guarded); };
  std::mt19937 random(seed);
  const bool each = seed % 8 == 0;

  const LoopNest plain = kernel();
  const auto threads = ExpandThreads(plain, program::MapToThreads(plain, 32));
  ExpectPassesRun(sink, threads, {}, false, start, want, seed, "threads");
  if (::testing::Test::HasFatalFailure()) return {};
  std::vector<PassResult> passes;
  const auto mapped = ExpandThreads(plain, RandomMapping(plain, random), &passes);
  ExpectPassesRun(sink, mapped, passes, each, start, want, seed, "random threads");
  if (::testing::Test::HasFatalFailure()) return {};

  Target target = TestTarget();
  target.vector_bytes = seed % 3 == 0 ? 16 : 64;
  for (const bool heuristic : {true, false}) {
    const std::vector<codegen::Opt> opts =
        heuristic ? codegen::HeuristicOpts(plain, target) : RandomOpts(guarded, target, random);
    auto planned = codegen::ApplyOpts(kernel(), opts, target);
    if (!planned.ok()) continue;
    ++counts.plans;
    passes.clear();
    const auto tiled = ExpandPlan(planned->kernel, planned->plan, &passes);
    ExpectPassesRun(sink, tiled, passes, each, start, want, seed,
                    "plan " + codegen::OptsToString(opts));
    if (::testing::Test::HasFatalFailure()) return {};
  }
  return *threads;
}

void CheckX86(const UOp* sink, const Buffers& start, const Buffers& want) {
  auto compiled = CompileKernel(sink);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto loaded = LoadedKernel::Load(*std::move(compiled));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  Buffers got = start;
  (*loaded)->RunGuarded(got, 2);
  ExpectClose(sink, got, want, kTolerance);
}

TEST(ProgramRandom, AllWaysToRunAKernelAgree) {
  const bool all = std::getenv("OUTBOARD_KERNELS") != nullptr;
  const bool one = std::getenv("OUTBOARD_SEED") != nullptr;
  const uint32_t first = Setting("OUTBOARD_SEED", 0);
  const uint32_t last = one ? first + 1 : Setting("OUTBOARD_KERNELS", 100);
  const uint32_t opencl_last = all || one ? last : Setting("OUTBOARD_OPENCL_KERNELS", 48);
  const std::unique_ptr<OpenClRunner> opencl = OpenClRunner::Make();
  if (opencl == nullptr) std::printf("no OpenCL device: not run as OpenCL\n");

  struct Waiting {
    uint32_t seed;
    std::unique_ptr<Graph> graph;
    const UOp* sink;
    Buffers start, want;
  };
  std::vector<Waiting> waiting;
  std::vector<CompiledKernel> texts;
  Counts counts;
  const auto run_opencl = [&] {
    if (texts.empty()) return;
    const absl::Status built = opencl->Build(texts);
    ASSERT_TRUE(built.ok()) << built;
    for (size_t i = 0; i < texts.size(); ++i) {
      Buffers got = waiting[i].start;
      const absl::Status ran = opencl->Run(texts[i], got, {});
      ASSERT_TRUE(ran.ok()) << ran << " seed " << waiting[i].seed;
      ExpectClose(waiting[i].sink, got, waiting[i].want, kTolerance);
      if (::testing::Test::HasFatalFailure()) {
        ADD_FAILURE() << "OpenCL, OUTBOARD_SEED=" << waiting[i].seed << "\n" << texts[i].object;
        return;
      }
      ++counts.opencl;
    }
    texts.clear();
    waiting.clear();
  };
  for (uint32_t seed = first; seed < last; ++seed) {
    auto graph = std::make_unique<Graph>();
    const UOp* const sink = RandomKernel(*graph, seed);
    const Buffers start = RandomBuffers(sink, seed);
    Buffers want = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    const Program threads = CheckPrograms(sink, start, want, seed, counts);
    if (!::testing::Test::HasFatalFailure()) CheckX86(sink, start, want);
    if (::testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "repeat with OUTBOARD_SEED=" << seed << " program_random_test\n"
                    << GraphToString(sink);
      return;
    }
    ++counts.kernels;
    if (opencl == nullptr || seed >= opencl_last) continue;
    auto text = render::RenderOpenClC(threads, "k" + std::to_string(seed), {});
    ASSERT_TRUE(text.ok()) << text.status();
    texts.push_back(*std::move(text));
    waiting.push_back({seed, std::move(graph), sink, start, want});
    if (texts.size() == kOpenClBatch) run_opencl();
    if (::testing::Test::HasFatalFailure()) return;
  }
  run_opencl();
  std::printf("program_random_kernels_agree %lld of %u; %lld as OpenCL; %lld plans\n",
              static_cast<long long>(counts.kernels), last - first,
              static_cast<long long>(counts.opencl), static_cast<long long>(counts.plans));
}

// Every type's arithmetic and every conversion, on all kinds of bit patterns: the same bits.
TEST(ProgramTypes, ArithmeticAndConversionsAreExact) {
  constexpr int64_t kElements = 512;
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<const UOp*> sinks;
  for (int code = 1; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    std::vector<Op> ops = {Op::kCmpLt, Op::kCmpNe, Op::kCmpEq};
    if (!IsBool(dtype)) ops.push_back(Op::kMax);
    const auto more = [&](std::initializer_list<Op> list) { ops.insert(ops.end(), list); };
    if (IsFloat(dtype)) {
      more({Op::kAdd, Op::kMul, Op::kFDiv, Op::kSqrt, Op::kTrunc, Op::kNeg});
    } else {
      more({Op::kAnd, Op::kOr, Op::kXor});
      if (IsInt(dtype))
        more({Op::kAdd, Op::kMul, Op::kNeg, Op::kIDiv, Op::kMod, Op::kShl, Op::kShr});
    }
    graphs.push_back(std::make_unique<Graph>());
    Graph& g = *graphs.back();
    const UOp* const range = test::Range(g, 0, kElements);
    const UOp* const x = LoadAt(g, 0, dtype, kElements, range);
    const UOp* const y = LoadAt(g, 1, dtype, kElements, range);
    std::vector<const UOp*> stores;
    const auto store = [&](const UOp* value) {
      const auto slot = static_cast<int64_t>(stores.size()) + 2;
      stores.push_back(StoreAt(g, slot, kElements, range, value));
    };
    for (const Op op : ops) store(IsUnary(op) ? Alu(g, op, x) : Alu(g, op, x, y));
    for (int to = 1; to < kDTypeCount; ++to)
      if (to != code) store(Cast(g, x, static_cast<DType>(to)));
    sinks.push_back(Sink(g, stores));
  }
  const std::unique_ptr<OpenClRunner> opencl = OpenClRunner::Make();
  std::vector<CompiledKernel> texts;
  for (size_t i = 0; i < sinks.size(); ++i) {
    const LoopNest kernel = *codegen::AnalyzeKernel(sinks[i]);
    const auto made = ExpandThreads(kernel, program::MapToThreads(kernel, 32));
    ASSERT_TRUE(made.ok()) << made.status();
    auto text = render::RenderOpenClC(*made, "t" + std::to_string(i), {});
    ASSERT_TRUE(text.ok()) << text.status();
    texts.push_back(*std::move(text));
  }
  if (opencl == nullptr) GTEST_SKIP() << "no OpenCL device";
  const absl::Status built = opencl->Build(texts);
  ASSERT_TRUE(built.ok()) << built;
  for (size_t i = 0; i < sinks.size(); ++i) {
    Buffers got = RandomBuffers(sinks[i], static_cast<uint32_t>(i), /*wild=*/true), want = got;
    ASSERT_EQ(WalkKernel(sinks[i], want), absl::OkStatus());
    ASSERT_EQ(opencl->Run(texts[i], got, {}), absl::OkStatus());
    ExpectClose(sinks[i], got, want, 0);
    if (::testing::Test::HasFatalFailure()) FAIL() << texts[i].object;
  }
}

// Of a device without fp64: refused by device and type.
TEST(ProgramTypes, WhatADeviceLacksIsRefusedByName) {
  Graph g;
  const UOp* const range = test::Range(g, 0, 8);
  const UOp* const sink =
      Sink(g, {StoreAt(g, 0, 8, range, Cast(g, LoadAt(g, 1, DType::kF32, 8, range), DType::kF64))});
  CompileOptions options;
  options.opencl = render::OpenClDevice{.name = "small", .fp64 = false};
  const absl::Status status = CompileKernel(sink, options).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(status.message(), "device small has no form for f64");
  options.opencl->fp64 = true;
  const auto compiled = CompileKernel(sink, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->form, CompiledKernel::Form::kOpenClC);
  EXPECT_EQ(compiled->threads[0] * compiled->blocks[0], 8);
}

}  // namespace
}  // namespace outboard::test
