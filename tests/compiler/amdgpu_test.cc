// Kernels for AMD's GPUs: compiled, linked by lld and disassembled where these are there, never
// run. What the same programs compute is known from the targets that run them.
// OUTBOARD_KERNELS=n: so many random kernels.
#include "compiler/render/llvm/amdgpu/amdgpu.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/print.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/amdgpu_object.h"
#include "tests/compiler/golden_kernels.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_random.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Grid;
using program::ProgramBuilder;
using program::Space;
using program::ValueId;

constexpr const char* kArchs[] = {"gfx942", "gfx1100"};
constexpr int kComputeUnits = 96;

absl::StatusOr<CompiledKernel> Rendered(const program::Program& program, const std::string& arch,
                                        int64_t columns_max = render::kGridColumnsMax,
                                        std::string* ir = nullptr) {
  OB_ASSIGN_OR_RETURN(const auto renderer,
                      render::MakeAmdgpuRenderer(AmdTarget(arch, kComputeUnits), columns_max));
  return renderer->Render(program, "k", ir);
}

void ExpectIsAnObject(const CompiledKernel& kernel) {
  EXPECT_EQ(kernel.form, CompiledKernel::Form::kElfAmdgpu);
  Elf64_Ehdr header;
  ASSERT_GE(kernel.object.size(), sizeof header);
  std::memcpy(&header, kernel.object.data(), sizeof header);
  EXPECT_EQ(std::memcmp(header.e_ident, ELFMAG, SELFMAG), 0);
  EXPECT_EQ(header.e_type, ET_REL);
  constexpr int kAmdgpu = 224;  // EM_AMDGPU, which older <elf.h> lack
  EXPECT_EQ(header.e_machine, kAmdgpu);
}

// Linked; nothing of it lies in memory of a thread's own.
void ExpectStaysInRegisters(const CompiledKernel& kernel, const std::string& arch) {
  if (kernel.tasks == 0 || !MissingAmdgpuTool().empty()) return;
  const auto code = LinkAndDisassemble(kernel.object, arch);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(code->private_bytes, 0) << code->text;
  EXPECT_EQ(code->spills, 0) << code->text;
  EXPECT_TRUE(absl::StrContains(code->text, "s_endpgm")) << code->text;
}

class AmdgpuGolden : public testing::TestWithParam<GoldenKernel> {};

TEST_P(AmdgpuGolden, EveryKernel_IsAnObjectForEachGpu) {
  for (const char* const arch : kArchs) {
    SCOPED_TRACE(arch);
    const Target target = AmdTarget(arch, kComputeUnits);
    Graph g;
    const UOp* const sink = RecordProgram(
        g, {GetParam().name, [&](Size) { realize(GetParam().results()); }}, Size::kReal);
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, target));
    for (size_t k = 0; k < schedule.kernels.size(); ++k) {
      const auto kernel = CompileKernel(schedule.kernels[k].ast, {.target = target});
      ASSERT_TRUE(kernel.ok()) << kernel.status() << KernelToString(schedule, k);
      EXPECT_THAT(kernel->given_up, testing::IsEmpty());
      ExpectIsAnObject(*kernel);
      ExpectStaysInRegisters(*kernel, arch);
      const auto again = CompileKernel(schedule.kernels[k].ast, {.target = target});
      EXPECT_EQ(kernel->object, again->object);  // the same bytes
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AmdgpuGolden, testing::ValuesIn(GoldenKernels()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Amdgpu, ToolsThatLinkAndDisassemble_AreThere) {
  const std::string missing = MissingAmdgpuTool();
  if (!missing.empty()) GTEST_SKIP() << "no " << missing << " (Debian's lld-19, llvm-19)";
}

TEST(Amdgpu, RandomKernels_AreObjects) {
  const char* const wanted = std::getenv("OUTBOARD_KERNELS");
  const int count = wanted != nullptr ? std::atoi(wanted) : 60;
  for (int seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(seed);
    Graph g;
    const UOp* const sink = RandomKernel(g, static_cast<uint32_t>(seed));
    const char* const arch = kArchs[seed % 2];
    const auto kernel = CompileKernel(sink, {.target = AmdTarget(arch, kComputeUnits)});
    ASSERT_TRUE(kernel.ok()) << kernel.status() << GraphToString(sink);
    ExpectIsAnObject(*kernel);
    if (seed % 5 == 0) ExpectStaysInRegisters(*kernel, arch);
  }
}

// Functions of f64 have no library here, either.
TEST(Amdgpu, FunctionsOfEveryType_AreArithmetic) {
  constexpr int64_t kElements = 100;
  for (const char* const arch : kArchs)
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(std::string(Name(dtype)) + " " + arch);
      Graph g;
      const UOp* const i = test::Range(g, 0, kElements);
      std::vector<const UOp*> stores;
      for (const Op op : {Op::kExp, Op::kLog2, Op::kSin, Op::kTanh, Op::kSqrt})
        stores.push_back(StoreAt(g, 1 + static_cast<int64_t>(stores.size()), kElements, i,
                                 Alu(g, op, LoadAt(g, 0, dtype, kElements, i))));
      const auto kernel = CompileKernel(Sink(g, stores), {.target = AmdTarget(arch, 1)});
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      ExpectStaysInRegisters(*kernel, arch);
    }
}

// Threads of a block turn a row around in shared memory, then exchange neighbours' values.
program::Program TurnedRows(int64_t threads) {
  constexpr int64_t kBlocks = 3;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kBlocks * threads),
                in = b.Buffer(DType::kF32, 1, kBlocks * threads);
  const ValueId block = b.Special(Grid::kBlock, kBlocks);
  const ValueId thread = b.Special(Grid::kThread, threads);
  const ValueId row = b.Alloc(Space::kShared, DType::kF32, threads);
  const ValueId at = b.Plus(b.Times(block, threads), thread);
  b.Store(row, thread, b.Load(in, at));
  b.Barrier();
  const ValueId value = b.Load(row, b.Plus(b.Int(threads - 1), b.Times(thread, -1)));
  const ValueId other =
      b.Add({.code = Code::kShuffle, .dtype = DType::kF32, .src = {value}, .imm = {1, 0, 0}});
  b.Store(out, at, b.Alu(Op::kAdd, DType::kF32, {value, other}));
  return b.Take(2);
}

TEST(Amdgpu, BlocksOfThreads_ShareMemoryAndRegisters) {
  const std::string missing = MissingAmdgpuTool();
  for (const char* const arch : kArchs) {
    SCOPED_TRACE(arch);
    const auto kernel = Rendered(TurnedRows(128), arch);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_EQ(kernel->threads[0], 128);
    EXPECT_EQ(kernel->blocks[0], 3);
    EXPECT_EQ(kernel->shared_bytes, 512);
    ExpectIsAnObject(*kernel);
    if (!missing.empty()) continue;
    const auto code = LinkAndDisassemble(kernel->object, arch);
    ASSERT_TRUE(code.ok()) << code.status();
    const bool cdna = absl::StrContains(arch, "gfx9");
    for (const char* const instruction : {"s_barrier", cdna ? "ds_write" : "ds_store",
                                          cdna ? "ds_read" : "ds_load", "ds_bpermute_b32"})
      EXPECT_TRUE(absl::StrContains(code->text, instruction)) << instruction << code->text;
  }
}

TEST(Amdgpu, BlocksBeyondAGridsFirstAxis_LieInRows) {
  for (const char* const arch : kArchs) {
    SCOPED_TRACE(arch);
    std::string whole, rows;
    const auto one = Rendered(TurnedRows(128), arch, render::kGridColumnsMax, &whole);
    const auto two = Rendered(TurnedRows(128), arch, 2, &rows);
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(two.ok()) << two.status();
    EXPECT_EQ(one->blocks, (std::array<int64_t, 3>{3, 1, 1}));
    EXPECT_EQ(two->blocks, (std::array<int64_t, 3>{2, 2, 1}));
    EXPECT_EQ(two->tasks, 3);
    ExpectIsAnObject(*two);
    ExpectStaysInRegisters(*two, arch);
    EXPECT_FALSE(absl::StrContains(whole, "workgroup.id.y")) << whole;
    EXPECT_TRUE(absl::StrContains(rows, "workgroup.id.y")) << rows;
    EXPECT_TRUE(absl::StrContains(rows, "icmp ult i64")) << rows;
  }
}

TEST(Amdgpu, ASumWithAProduct_IsOneInstructionOnlyWhereTheProgramAllowsIt) {
  if (const std::string missing = MissingAmdgpuTool(); !missing.empty())
    GTEST_SKIP() << "no " << missing << " (Debian's lld-19, llvm-19)";
  for (const char* const arch : kArchs)
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
      const auto code = LinkAndDisassemble(ValueOrDie(Rendered(b.Take(2), arch)).object, arch);
      ASSERT_TRUE(code.ok()) << code.status();
      const bool fused = absl::StrContains(code->text, "v_fma");
      EXPECT_EQ(fused, allowed) << code->text;
    }
}

TEST(Amdgpu, WhatItLacks_IsRefusedByName) {
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, 32 * 4);
  const ValueId thread = b.Special(Grid::kThread, kWarpThreads);
  const auto lanes = [&](DType dtype, int count) {
    return b.Add({.code = Code::kLanes, .dtype = dtype, .lanes = count,
                  .src = {b.Const(dtype, 0)}});
  };
  const ValueId product = b.Add({.code = Code::kMma, .dtype = DType::kF32, .lanes = 4,
                                 .src = {lanes(DType::kBF16, 8), lanes(DType::kBF16, 4),
                                         lanes(DType::kF32, 4)}});
  b.Store(out, b.Times(thread, 4), product);
  const absl::Status status = Rendered(b.Take(1), "gfx942").status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(status.message(), "gfx942 has no form for MMA");
  for (const char* const arch : {"gfx90a", "sm_90", ""})
    EXPECT_TRUE(absl::IsInvalidArgument(
        render::MakeAmdgpuRenderer(AmdTarget(arch, kComputeUnits)).status()))
        << arch;
  EXPECT_TRUE(absl::IsInvalidArgument(render::MakeAmdgpuRenderer(TestTarget()).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(Rendered(TurnedRows(512), "gfx1100").status()));
}

}  // namespace
}  // namespace outboard::test
