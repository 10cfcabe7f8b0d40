// Programs as PTX: run on the PTX machine against a walk of their kernel, and assembled by NVIDIA's
// assembler where there is one. codegen_test's kernels run there too (OUTBOARD_CHECK_PTX).
// OUTBOARD_KERNELS=n: so many random kernels; OUTBOARD_SEED=n: kernel n alone.
#include "compiler/render/ptx/ptx_renderer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "compiler/kernel/decompose_math_f64.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "compiler/proof/in_range.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_random.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Grid;
using program::Program;
using program::ProgramBuilder;
using program::Space;
using program::ValueId;

// Of each type one kernel of all operations and conversions that it has, and one of its functions.
struct NamedKernel {
  std::string name;
  std::unique_ptr<Graph> graph;
  const UOp* sink;
  double tolerance = 0;  // 0: the same bits of all bit patterns, but for NaNs
  bool exponentials_by_unit = false;  // may be the unit's: functions of 16 bits or fewer
};
// Functions and sums may differ by some units in the last place.
double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 2e-15;
    case DType::kF32: return 3e-7;
    case DType::kF16: return 1e-3;
    case DType::kBF16: return 8e-3;
    default: return 0.26;
  }
}
std::vector<NamedKernel> OperatorKernels() {
  constexpr int64_t kElements = 300;
  std::vector<NamedKernel> kernels;
  for (int code = 1; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    for (const bool functions : {false, true}) {
      auto graph = std::make_unique<Graph>();
      Graph& g = *graph;
      const UOp* const i = test::Range(g, 0, kElements);
      std::vector<const UOp*> stores;
      const auto store = [&](const UOp* value) {
        stores.push_back(StoreAt(g, 4 + static_cast<int64_t>(stores.size()), kElements, i, value));
      };
      for (int number = 20; number <= 51; ++number) {
        const Op op = static_cast<Op>(number);
        if (!IsAlu(op) || IsTranscendental(op) != functions) continue;
        std::vector<const UOp*> src;
        for (int s = 0; s < (IsUnary(op) ? 1 : IsBinary(op) ? 2 : 3); ++s)
          src.push_back(op == Op::kWhere && s == 0 ? LoadAt(g, 3, DType::kBool, kElements, i)
                                                   : LoadAt(g, s, dtype, kElements, i));
        const auto value = g.Make(op, DType::kVoid, src);
        if (value.ok()) store(*value);
      }
      for (int to = 1; to < kDTypeCount && !functions; ++to)
        if (to != code) store(Cast(g, LoadAt(g, 0, dtype, kElements, i), static_cast<DType>(to)));
      if (stores.empty()) continue;
      const UOp* const sink = Sink(g, stores);
      kernels.push_back({std::string(Name(dtype)) + (functions ? " functions" : ""),
                         std::move(graph), sink, functions ? Tolerance(dtype) : 0,
                         functions && ByteWidth(dtype) <= 2});
    }
  }
  // Reductions by a block together, products of matrices, gates.
  const auto add = [&](const std::string& name, auto make) {
    auto graph = std::make_unique<Graph>();
    const UOp* const sink = make(*graph);
    kernels.push_back({name, std::move(graph), sink, 1e-5});
  };
  add("matmul", [](Graph& g) { return MatMul(g, 17, 33, 9); });
  add("convolution", [](Graph& g) { return ConvForward(g, Conv{1, 2, 3, 2, 12, 11}); });
  add("convolution gradient", [](Graph& g) {
    return ConvInputGradient(g, Conv{2, 3, 4, 3, 8, 9}, /*gate_term=*/true);
  });
  add("long sums", [](Graph& g) {
    const UOp *i = test::Range(g, 0, 3), *k = ReduceRange(g, 1, 1000);
    const UOp* const x = LoadAt(g, 1, DType::kF32, 3000, RowMajor(g, {i, k}, {3, 1000}));
    return Sink(g, {StoreAt(g, 0, 3, i, Fold(g, Op::kAdd, x, {k}))});
  });
  return kernels;
}

TEST(Ptx, EveryOperationForEveryGpu_StaysInRegistersAndRunsAsTheWalk) {
  int count = 0;
  for (const NamedKernel& kernel : OperatorKernels()) {
    const Buffers start = RandomBuffers(kernel.sink, 5, /*wild=*/kernel.tolerance == 0);
    Buffers want = start;
    ASSERT_EQ(WalkKernel(kernel.sink, want), absl::OkStatus());
    std::set<std::string> bodies;
    for (const char* const arch : kArchs) {
      SCOPED_TRACE(kernel.name + " " + arch);
      const auto compiled =
          CompileKernel(kernel.sink, {.target = CudaTarget(arch, kMultiprocessors)});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      EXPECT_EQ(compiled->form, CompiledKernel::Form::kPtx);
      ExpectClean(compiled->object, kernel.exponentials_by_unit);
      if (!bodies.insert(BodyOf(*compiled)).second) continue;
      Buffers got = start;
      const absl::Status ran = RunOnPtxMachine(*compiled, got);
      ASSERT_TRUE(ran.ok()) << ran;
      ExpectClose(kernel.sink, got, want, kernel.tolerance);
      if (HasFatalFailure()) FAIL() << compiled->object;
      ++count;
    }
  }
  std::printf("%d kernels on the PTX machine\n", count);
}

TEST(Ptx, EveryOperationForEveryGpu_IsAssembledWithoutSpills) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas in PATH or OUTBOARD_PTXAS";
  int count = 0;
  for (const char* const arch : kArchs)
    for (const NamedKernel& kernel : OperatorKernels()) {
      const auto compiled =
          CompileKernel(kernel.sink, {.target = CudaTarget(arch, kMultiprocessors)});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const auto stack_bytes = StackBytesOf(ptxas, compiled->object, arch);
      ASSERT_TRUE(stack_bytes.ok()) << kernel.name << " " << arch << ": " << stack_bytes.status();
      EXPECT_EQ(*stack_bytes, 0) << kernel.name << " " << arch;
      ++count;
    }
  std::printf("%d kernels assembled\n", count);
}

// Threads in blocks of any size, and plans of one thread with lanes, tiles and private memory.
TEST(Ptx, RandomKernels_RunAsTheWalk) {
  const auto setting = [](const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
  };
  const bool one = std::getenv("OUTBOARD_SEED") != nullptr;
  const int first = setting("OUTBOARD_SEED", 0);
  const int last = one ? first + 1 : setting("OUTBOARD_KERNELS", 180);
  int programs = 0, too_large = 0;
  for (int seed = first; seed < last; ++seed) {
    Graph g, guards;
    const UOp* const sink = RandomKernel(g, static_cast<uint32_t>(seed));
    const UOp* const guarded =
        codegen::DecomposeTranscendentalsOfF64(guards, *proof::GuardUnproved(guards, sink));
    const Buffers start = RandomBuffers(sink, static_cast<uint32_t>(seed));
    Buffers want = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    const codegen::LoopNest kernel = *codegen::AnalyzeKernel(guarded);
    std::mt19937 random(static_cast<uint32_t>(seed));
    const program::ThreadMapping mapping{
        .threads = int64_t{1} << random() % 8,
        .block_ranges = static_cast<int>(random() % (kernel.parallel_count + 1)),
        .stride = random() % 2 == 0,
        .together = random() % 2 == 0};
    std::vector<std::pair<std::string, absl::StatusOr<Program>>> all;
    all.emplace_back("threads", program::ExpandThreads(kernel, program::MapToThreads(kernel, 256)));
    all.emplace_back("other threads", program::ExpandThreads(kernel, mapping));
    const Target lanes = TestTarget();
    if (auto planned = codegen::ApplyOpts(*codegen::AnalyzeKernel(guarded),
                                          codegen::HeuristicOpts(kernel, lanes), lanes);
        planned.ok())
      all.emplace_back("lanes", program::ExpandPlan(planned->kernel, planned->plan));
    for (const auto& [what, program] : all) {
      SCOPED_TRACE(what + ", repeat with OUTBOARD_SEED=" + std::to_string(seed));
      ASSERT_TRUE(program.ok()) << program.status();
      const auto compiled = Rendered(*program, kArchs[seed % 4]);
      if (what == "lanes" && absl::IsUnimplemented(compiled.status())) {
        ++too_large;
        continue;
      }
      ASSERT_TRUE(compiled.ok()) << compiled.status() << ToString(*program);
      ExpectClean(compiled->object);
      Buffers got = start;
      const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, static_cast<uint64_t>(seed));
      ASSERT_TRUE(ran.ok()) << ran << "\n" << ToString(*program) << compiled->object;
      ExpectClose(sink, got, want, 2e-3);
      if (HasFailure()) FAIL() << ToString(*program) << compiled->object;
      ++programs;
    }
  }
  RecordProperty("random_programs", programs);  // tests/bench/gpu_test_figures.cc
  std::printf("%d programs of %d kernels; private memory of %d plans was too large\n", programs,
              last - first, too_large);
  EXPECT_LE(too_large, (last - first) / 4);
}

// ---- programs by hand, against the interpreter of programs

TEST(Ptx, CopiesToSharedMemoryAndBarriers) {
  constexpr int64_t kThreads = 64, kBlocks = 3, kSteps = 4;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kBlocks * kThreads * kSteps),
                in = b.Buffer(DType::kF32, 1, kBlocks * kThreads * kSteps);
  const ValueId block = b.Special(Grid::kBlock, kBlocks),
                thread = b.Special(Grid::kThread, kThreads);
  const ValueId tile = b.Alloc(Space::kShared, DType::kF32, kThreads);
  const ValueId step = b.Loop(kSteps);
  const ValueId at = b.Plus(b.Times(b.Plus(b.Times(block, kSteps), step), kThreads), thread);
  b.Add({.code = Code::kCopy, .src = {tile, thread, in, at}, .imm = {1, 0, 0}});
  b.Add({.code = Code::kCommit});
  b.Add({.code = Code::kWait});
  b.Barrier();
  const ValueId behind = b.Plus(b.Int(kThreads - 1), b.Times(thread, -1));
  const ValueId value = b.Load(tile, behind);
  const ValueId some = b.If(b.Less(thread, b.Int(50)));
  b.Store(out, at, b.Alu(Op::kAdd, DType::kF32, {value, value}));
  b.EndIf(some);
  b.Barrier();
  b.End(step);
  const int64_t elements = kBlocks * kThreads * kSteps;
  ExpectRunsAsInterpreted(b.Take(2), {Floats(elements, 0), Floats(elements, 0.5f)});
}

// What one thread stores to a buffer, others of its block read behind a barrier.
TEST(Ptx, BuffersThatABlockWritesAndReads) {
  constexpr int64_t kThreads = 64;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kThreads), mid = b.Buffer(DType::kF32, 1, kThreads);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const ValueId before = b.Load(mid, thread);
  b.Store(mid, thread, b.Alu(Op::kAdd, DType::kF32, {before, before}));
  b.Barrier();
  const ValueId behind = b.Plus(b.Int(kThreads - 1), b.Times(thread, -1));
  b.Store(out, thread, b.Load(mid, behind));
  ExpectRunsAsInterpreted(b.Take(2), {Floats(kThreads, 0), Floats(kThreads, 2)});
}

// An index of private memory that is no constant selects among registers.
TEST(Ptx, PrivateMemoryAtAnyIndex_BecomesRegisters) {
  constexpr int64_t kThreads = 32, kPlaces = 8;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kThreads * kPlaces),
                in = b.Buffer(DType::kF32, 1, kThreads * kPlaces);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const ValueId own = b.Alloc(Space::kPrivate, DType::kF32, kPlaces);
  const auto place = [&](ValueId k) { return b.Plus(b.Times(thread, kPlaces), k); };
  const ValueId read = b.Loop(kPlaces);
  b.Store(own, b.Modulo(b.Plus(read, thread), kPlaces), b.Load(in, place(read)));
  b.End(read);
  const ValueId write = b.Loop(kPlaces);
  b.Store(out, place(write), b.Load(own, write));
  b.End(write);
  ExpectRunsAsInterpreted(b.Take(2),
                          {Floats(kThreads * kPlaces, 0), Floats(kThreads * kPlaces, 1)});
}

TEST(Ptx, LoopsAsLongAsAVar) {
  constexpr int64_t kThreads = 16, kTerms = 20;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kThreads), in = b.Buffer(DType::kF32, 2, kTerms);
  const ValueId terms = b.Add({.code = Code::kVar, .dtype = DType::kI64, .imm = {1, 0, kTerms}});
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const ValueId sum = b.Alloc(Space::kPrivate, DType::kF32, 1);
  b.Store(sum, b.Int(0), b.Const(DType::kF32, 0));
  const ValueId k = b.Loop(kTerms, program::How::kPlain, 1, terms);
  b.Store(sum, b.Int(0), b.Alu(Op::kAdd, DType::kF32, {b.Load(sum, b.Int(0)), b.Load(in, k)}));
  b.End(k);
  b.Store(out, thread, b.Load(sum, b.Int(0)));
  const Program program = b.Take(3);
  for (const int64_t length : {0, 1, 20})
    ExpectRunsAsInterpreted(program, {Floats(kThreads, 9), "", Floats(kTerms, 1)}, {99, length});
}

TEST(Ptx, ProductsOfMatrices) {
  for (const DType dtype :
       {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3, DType::kF8E5M2}) {
    SCOPED_TRACE(std::string(Name(dtype)));
    const int packed = program::MmaPacked(dtype), depth = program::MmaDepth(dtype);
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kF32, 0, 16 * 8), x = b.Buffer(dtype, 1, 16 * depth),
                  y = b.Buffer(dtype, 2, depth * 8);
    const ValueId thread = b.Special(Grid::kThread, kWarpThreads);
    // Which element a lane holds is linear in the thread's group and its place there.
    const ValueId group = b.Divide(thread, 4), member = b.Modulo(thread, 4),
                  place = b.Times(member, packed), pair = b.Times(member, 2);
    const auto lanes = [&](ValueId memory, DType type, std::vector<ValueId> indices) {
      program::Instruction i{
          .code = Code::kLanes, .dtype = type, .lanes = static_cast<int>(indices.size())};
      for (const ValueId index : indices) i.src.push_back(b.Load(memory, index));
      return b.Add(i);
    };
    std::vector<ValueId> a_at, b_at, c_at;
    for (int lane = 0; lane < 4 * packed; ++lane) {
      const auto p = program::MmaElement(program::MmaOperand::kA, packed, 0, lane);
      a_at.push_back(
          b.Plus(b.Times(b.Plus(group, b.Int(p.row)), depth), b.Plus(place, b.Int(p.column))));
    }
    for (int lane = 0; lane < 2 * packed; ++lane) {
      const auto p = program::MmaElement(program::MmaOperand::kB, packed, 0, lane);
      b_at.push_back(
          b.Plus(b.Times(b.Plus(place, b.Int(p.row)), 8), b.Plus(group, b.Int(p.column))));
    }
    for (int lane = 0; lane < 4; ++lane) {
      const auto q = program::MmaElement(program::MmaOperand::kC, packed, 0, lane);
      c_at.push_back(
          b.Plus(b.Times(b.Plus(group, b.Int(q.row)), 8), b.Plus(pair, b.Int(q.column))));
    }
    const ValueId product = b.Add(
        {.code = Code::kMma,
         .dtype = DType::kF32,
         .lanes = 4,
         .src = {lanes(x, dtype, a_at), lanes(y, dtype, b_at), lanes(out, DType::kF32, c_at)}});
    for (int lane = 0; lane < 4; ++lane)
      b.Store(
          out, c_at[static_cast<size_t>(lane)],
          b.Add(
              {.code = Code::kLane, .dtype = DType::kF32, .src = {product}, .imm = {lane, 0, 0}}));
    const auto width = static_cast<size_t>(ByteWidth(dtype));
    Buffers start = {Floats(16 * 8, 1), std::string(16 * 32, '\0'), std::string(8 * 32, '\0')};
    // Of f32 more digits than the unit reads.
    const double more = dtype == DType::kF32 ? 0x1p-12 : 0;
    for (size_t slot = 1; slot < 3; ++slot)
      for (size_t i = 0; i < start[slot].size() / width; ++i)
        StoreFloat(dtype, static_cast<double>(i * slot % 11) - 5 + more * static_cast<double>(i),
                   start[slot].data() + width * i);
    const char* const newer[] = {"sm_89", "sm_90a"};
    ExpectRunsAsInterpreted(b.Take(3), start, {},
                            packed == 4 ? absl::MakeConstSpan(newer) : kArchs);
  }
}

// ---- limits and errors

const UOp* Elementwise(Graph& g, Op op, DType dtype) {
  const UOp* const i = test::Range(g, 0, 8);
  return Sink(g, {StoreAt(g, 0, 8, i, Alu(g, op, LoadAt(g, 1, dtype, 8, i)))});
}

TEST(Ptx, WhatAGpuLacks_IsRefusedByName) {
  Graph g;
  const codegen::LoopNest plain = *codegen::AnalyzeKernel(Elementwise(g, Op::kExp, DType::kF64));
  const absl::Status status =
      Rendered(*program::ExpandThreads(plain, program::MapToThreads(plain, 32))).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(status.message(), "sm_90 has no form for EXP of f64");
  CompileOptions options{.target = CudaTarget("sm_90", kMultiprocessors)};
  options.target.fp64 = false;
  EXPECT_TRUE(absl::IsUnimplemented(
      CompileKernel(Elementwise(g, Op::kSqrt, DType::kF64), options).status()));
  options.target.arch = "sm_70";
  EXPECT_TRUE(absl::IsInvalidArgument(
      CompileKernel(Elementwise(g, Op::kSqrt, DType::kF32), options).status()));
}

TEST(Ptx, MoreThreadsOrSharedMemoryThanABlockHas_IsRefused) {
  ProgramBuilder threads;
  threads.Store(threads.Buffer(DType::kF32, 0, 2048), threads.Special(Grid::kThread, 2048),
                threads.Const(DType::kF32, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(Rendered(threads.Take(1)).status()));
  // The parameters of a launch: more buffers than they have room for.
  ProgramBuilder wide;
  for (int slot = 0; slot < 600; ++slot)
    wide.Store(wide.Buffer(DType::kF32, slot, 1), wide.Int(0), wide.Const(DType::kF32, 1));
  const absl::Status too_wide = Rendered(wide.Take(600)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(too_wide));
  EXPECT_EQ(too_wide.message(),
            "a kernel of 600 buffers in 1 copy has 4928 bytes of parameters; a launch has 4096");
  ProgramBuilder fits;
  for (int slot = 0; slot < limits::kKernelBuffersMax; ++slot)
    fits.Store(fits.Buffer(DType::kF32, slot, 1), fits.Int(0), fits.Const(DType::kF32, 1));
  EXPECT_TRUE(Rendered(fits.Take(limits::kKernelBuffersMax)).ok());
  ProgramBuilder shared;
  const ValueId tile = shared.Alloc(Space::kShared, DType::kF32, 1 << 20);
  shared.Store(tile, shared.Int(0), shared.Const(DType::kF32, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(Rendered(shared.Take(0)).status()));
}

TEST(Ptx, ASumWithAProduct_IsOneInstructionOnlyWhereTheProgramAllowsIt) {
  for (const bool allowed : {false, true}) {
    ProgramBuilder b;
    const ValueId out = b.Buffer(DType::kF32, 0, 32), in = b.Buffer(DType::kF32, 1, 32);
    const ValueId thread = b.Special(Grid::kThread, 32);
    const ValueId x = b.Load(in, thread);
    program::Instruction sum{.code = Code::kAlu,
                             .op = Op::kAdd,
                             .dtype = DType::kF32,
                             .src = {b.Alu(Op::kMul, DType::kF32, {x, x}), x}};
    if (allowed) sum.imm[0] = static_cast<int64_t>(program::Precision::kWithProduct);
    b.Store(out, thread, b.Add(sum));
    const auto compiled = Rendered(b.Take(2));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(absl::StrContains(compiled->object, "fma.rn.f32"), allowed) << compiled->object;
    EXPECT_EQ(absl::StrContains(compiled->object, "mul.rn.f32"), !allowed) << compiled->object;
  }
}

// Numbers at the ends of each type and around multiples of the divisors, by constants that are
// powers of two, odd, even and large.
TEST(Ptx, EqualPrograms_GiveEqualBytes) {
  Graph g;
  const CompileOptions options{.target = CudaTarget("sm_90a", kMultiprocessors)};
  Compiler compiler(options);
  const UOp* const sink = MatMul(g, 17, 33, 9);
  const auto first = compiler.Compile(sink);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(compiler.Compile(ConvForward(g, Conv{1, 2, 3, 2, 12, 11})).ok());
  EXPECT_EQ(compiler.Compile(sink)->object, first->object);
  EXPECT_EQ(CompileKernel(sink, options)->object, first->object);
}

}  // namespace
}  // namespace outboard::test
