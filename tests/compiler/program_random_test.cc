// Random kernels as programs: lowered in tiles and in threads, after every pass, interpreted in
// several orders, and as OpenCL where the machine has it, against a walk of their expression and
// today's x86 code. OUTBOARD_SEED=n repeats kernel n alone. OUTBOARD_KERNELS=n makes n kernels, or
// with OUTBOARD_FIRST=m those from m to n - 1, so that several processes share the work; all of
// them run as OpenCL, else the first OUTBOARD_OPENCL_KERNELS. OUTBOARD_OPENCL_BATCH=n builds so
// many kernels as one OpenCL program.
#include <chrono>
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
constexpr uint32_t kOpenClBatch = 24;
constexpr int64_t kPassSteps = 20'000'000;  // a kernel; after these, no more passes are run
constexpr uint32_t kFewKernels = 200;
constexpr int64_t kOptimisedEvery = 8;  // batches

uint32_t Setting(const char* name, uint32_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? static_cast<uint32_t>(std::atoi(text)) : otherwise;
}

struct Counts {
  int64_t kernels = 0, plans = 0, opencl = 0, opencl_optimised = 0;
  int64_t pass_steps_left = 0, passes_not_run = 0, steps = 0;
  double interpret_s = 0, x86_s = 0, opencl_build_s = 0, opencl_run_s = 0;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Adds the time that it exists to a sum.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds) {}
  ~Timed() { seconds_ += watch_.seconds(); }

 private:
  double& seconds_;
  Stopwatch watch_;
};

void ExpectRuns(const UOp* sink, const Program& program, const Buffers& start, const Buffers& want,
                uint32_t seed, const std::string& what, Counts& counts) {
  const Timed timed(counts.interpret_s);
  Buffers got = start;
  const program::RunReport report = program::Interpret(program, got, {}, {.seed = seed});
  counts.pass_steps_left -= report.steps;
  counts.steps += report.steps;
  ASSERT_TRUE(report.ok()) << what << ": " << report.message << "\n" << ToString(program);
  ExpectClose(sink, got, want, kTolerance);
  if (::testing::Test::HasFatalFailure()) ADD_FAILURE() << what << "\n" << ToString(program);
}

void ExpectPassesRun(const UOp* sink, const absl::StatusOr<Program>& program,
                     const std::vector<PassResult>& passes, bool each, const Buffers& start,
                     const Buffers& want, uint32_t seed, const std::string& what, Counts& counts) {
  ASSERT_TRUE(program.ok()) << what << ": " << program.status() << "\n"
                            << (passes.empty() ? "" : ToString(passes.back().program));
  // Which ones are run of a kernel that is too large for all differs between kernels.
  for (size_t n = 0; each && n < passes.size(); ++n) {
    const PassResult& pass = passes[(seed / 8 + n) % passes.size()];
    if (counts.pass_steps_left <= 0) {
      ++counts.passes_not_run;
      continue;
    }
    ExpectRuns(sink, pass.program, start, want, seed, what + " after " + pass.pass, counts);
    if (::testing::Test::HasFatalFailure()) return;
  }
  ExpectRuns(sink, *program, start, want, seed, what, counts);
}

ThreadMapping RandomMapping(const LoopNest& kernel, std::mt19937& random) {
  ThreadMapping mapping;
  mapping.threads = int64_t{1} << random() % 7;
  mapping.block_ranges = static_cast<int>(random() % (kernel.parallel_count + 1));
  mapping.stride = random() % 2 == 0;
  mapping.together = random() % 2 == 0;
  return mapping;
}

// A device of any kind that has room for the tests' kernels.
const Target& OpenClTarget() {
  static const Target target = [] {
    Target t = TestTarget();
    t.kind = TargetKind::kOpenCl;
    t.name = "small";
    t.block_threads = 64;
    t.shared_bytes = 32 << 10;
    return t;
  }();
  return target;
}

// The kernel's program for OpenCL: blocks of threads, or one of its plans.
Program CheckPrograms(const UOp* sink, const Buffers& start, const Buffers& want, uint32_t seed,
                      Counts& counts) {
  Graph guards;
  const UOp* const guarded = *proof::GuardUnproved(guards, sink);
  const auto kernel = [&] { return *codegen::AnalyzeKernel(guarded); };
  std::mt19937 random(seed);
  const bool each = seed % 8 == 0;
  counts.pass_steps_left = kPassSteps;

  const LoopNest plain = kernel();
  Program opencl;
  std::vector<PassResult> passes;
  const auto threads = ExpandThreads(plain, program::MapToThreads(plain, 32), &passes);
  ExpectPassesRun(sink, threads, passes, false, start, want, seed, "threads", counts);
  if (::testing::Test::HasFatalFailure()) return {};
  passes.clear();
  const auto mapped = ExpandThreads(plain, RandomMapping(plain, random), &passes);
  ExpectPassesRun(sink, mapped, passes, each, start, want, seed, "random threads", counts);
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
                    "plan " + codegen::OptsToString(opts), counts);
    if (::testing::Test::HasFatalFailure()) return {};
    opencl = *tiled;
  }
  return seed % 3 == 0 || opencl.code.empty() ? *threads : opencl;
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
  const uint32_t first = one ? Setting("OUTBOARD_SEED", 0) : Setting("OUTBOARD_FIRST", 0);
  const uint32_t last = one ? first + 1 : Setting("OUTBOARD_KERNELS", 100);
  const uint32_t opencl_last = Setting("OUTBOARD_OPENCL_KERNELS", all || one ? last : 48);
  const std::unique_ptr<OpenClRunner> opencl = OpenClRunner::Make();
  const uint32_t batch = Setting("OUTBOARD_OPENCL_BATCH", kOpenClBatch);
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
  // Of many kernels, most are compiled without the driver's optimiser.
  const bool few = last - first <= kFewKernels;
  int64_t batches = 0;
  const auto run_opencl = [&] {
    if (texts.empty()) return;
    {
      const Timed timed(counts.opencl_build_s);
      const bool optimised = few || batches++ % kOptimisedEvery == 0;
      if (optimised) counts.opencl_optimised += static_cast<int64_t>(texts.size());
      const absl::Status built = opencl->Build(
          texts, optimised ? OpenClRunner::Optimiser::kOn : OpenClRunner::Optimiser::kOff);
      ASSERT_TRUE(built.ok()) << built;
    }
    const Timed timed(counts.opencl_run_s);
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
  const Stopwatch watch;
  double told_s = 0, slowest_s = 0;
  uint32_t slowest = first;
  for (uint32_t seed = first; seed < last; ++seed) {
    if (watch.seconds() - told_s >= 10) {
      told_s = watch.seconds();
      std::printf("%.0f s: %lld of %u kernels, %lld as OpenCL\n", told_s,
                  static_cast<long long>(counts.kernels), last - first,
                  static_cast<long long>(counts.opencl));
      std::fflush(stdout);
    }
    const Stopwatch kernel_watch;
    auto graph = std::make_unique<Graph>();
    const UOp* const sink = RandomKernel(*graph, seed);
    const Buffers start = RandomBuffers(sink, seed);
    Buffers want = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    const Program rendered = CheckPrograms(sink, start, want, seed, counts);
    if (!::testing::Test::HasFatalFailure()) {
      const Timed timed(counts.x86_s);
      CheckX86(sink, start, want);
    }
    if (::testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "repeat with OUTBOARD_SEED=" << seed << " program_random_test\n"
                    << GraphToString(sink);
      return;
    }
    ++counts.kernels;
    if (const double s = kernel_watch.seconds(); s > slowest_s) {
      slowest_s = s;
      slowest = seed;
    }
    if (opencl == nullptr || seed >= opencl_last) continue;
    auto text = render::RenderOpenClC(rendered, "k" + std::to_string(seed), OpenClTarget());
    ASSERT_TRUE(text.ok()) << text.status();
    texts.push_back(*std::move(text));
    waiting.push_back({seed, std::move(graph), sink, start, want});
    if (texts.size() == batch) run_opencl();
    if (::testing::Test::HasFatalFailure()) return;
  }
  run_opencl();
  std::printf(
      "program_random_kernels_agree %lld of %u; %lld as OpenCL, %lld of them optimised\n"
      "%lld plans; %lld passes of large kernels not run\n",
      static_cast<long long>(counts.kernels), last - first, static_cast<long long>(counts.opencl),
      static_cast<long long>(counts.opencl_optimised), static_cast<long long>(counts.plans),
      static_cast<long long>(counts.passes_not_run));
  std::printf(
      "%.1f s: interpreted %.1f (%lld million steps), compiled and run on x86 %.1f, built as "
      "OpenCL %.1f, run as OpenCL "
      "%.1f; kernel %u was the slowest, with %.2f s\n",
      watch.seconds(), counts.interpret_s, static_cast<long long>(counts.steps / 1'000'000),
      counts.x86_s, counts.opencl_build_s, counts.opencl_run_s, slowest, slowest_s);
}

// Every type's arithmetic and every conversion, of scalars and of vectors, on all kinds of bit
// patterns: the same bits.
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
    if (IsInt(dtype)) {  // by lanes that are 0 only where a mask has taken them out
      const UOp* const masked = Where(g, Alu(g, Op::kCmpLt, x, y), x, ConstInt(g, dtype, 0));
      for (const Op op : {Op::kIDiv, Op::kMod}) store(Alu(g, op, masked, masked));
    }
    for (int to = 1; to < kDTypeCount; ++to)
      if (to != code) store(Cast(g, x, static_cast<DType>(to)));
    sinks.push_back(Sink(g, stores));
  }
  const std::unique_ptr<OpenClRunner> opencl = OpenClRunner::Make();
  std::vector<CompiledKernel> texts;
  const auto add = [&](const absl::StatusOr<Program>& made) {
    ASSERT_TRUE(made.ok()) << made.status();
    auto text = render::RenderOpenClC(*made, "t" + std::to_string(texts.size()), OpenClTarget());
    ASSERT_TRUE(text.ok()) << text.status();
    texts.push_back(*std::move(text));
  };
  for (const UOp* sink : sinks) {
    const LoopNest kernel = *codegen::AnalyzeKernel(sink);
    add(ExpandThreads(kernel, program::MapToThreads(kernel, 32)));
    const auto planned = codegen::ApplyOpts(*codegen::AnalyzeKernel(sink),
                                            *codegen::ParseOpts("VECTOR:0:8"), OpenClTarget());
    ASSERT_TRUE(planned.ok()) << planned.status();
    add(ExpandPlan(planned->kernel, planned->plan));
  }
  if (opencl == nullptr) GTEST_SKIP() << "no OpenCL device";
  const absl::Status built = opencl->Build(texts, OpenClRunner::Optimiser::kOn);
  ASSERT_TRUE(built.ok()) << built;
  for (size_t i = 0; i < texts.size(); ++i) {
    const UOp* const sink = sinks[i / 2];
    Buffers got = RandomBuffers(sink, static_cast<uint32_t>(i), /*wild=*/true), want = got;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    ASSERT_EQ(opencl->Run(texts[i], got, {}), absl::OkStatus());
    ExpectClose(sink, got, want, 0);
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
  options.target = OpenClTarget();
  options.target.fp64 = false;
  const absl::Status status = CompileKernel(sink, options).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(status.message(), "device small has no form for f64");
  options.target.fp64 = true;
  const auto compiled = CompileKernel(sink, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->form, CompiledKernel::Form::kOpenClC);
  EXPECT_EQ(compiled->threads[0] * compiled->blocks[0], 8);
}

}  // namespace
}  // namespace outboard::test
