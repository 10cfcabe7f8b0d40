// Products of matrices for AMD's matrix units: programs in the interpreter, against a walk of the
// kernel; objects linked and disassembled where the tools are there. No device runs them.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "tests/compiler/amd_products.h"
#include "tests/compiler/amdgpu_object.h"
#include "tests/compiler/mma_check.h"

namespace outboard::test {
namespace {

struct Gpu {
  const char* arch;
  MatrixUnit unit;
  const char* instruction;  // in the disassembly, before the type
};
constexpr Gpu kGpus[] = {{"gfx1100", MatrixUnit::kWmma, "v_wmma_f32_16x16x16_"},
                         {"gfx942", MatrixUnit::kMfma, "v_mfma_f32_16x16x16"}};
constexpr int kComputeUnits = 96;

// Each element has one place among the threads; of WMMA's operands two.
TEST(AmdMatrix, Fragments_CoverTheMatrices) {
  for (const Gpu& gpu : kGpus)
    for (const auto& [operand, lanes] :
         {std::pair(program::MmaOperand::kA, program::AmdOperandLanes(gpu.unit)),
          {program::MmaOperand::kB, program::AmdOperandLanes(gpu.unit)},
          {program::MmaOperand::kC, program::AmdSumLanes(gpu.unit)}}) {
      std::multiset<std::pair<int, int>> places;
      for (int thread = 0; thread < ThreadsOf(gpu.unit); ++thread)
        for (int lane = 0; lane < lanes; ++lane) {
          const auto p = program::AmdElement(gpu.unit, operand, thread, lane);
          places.insert({p.row, p.column});
        }
      const bool twice = gpu.unit == MatrixUnit::kWmma && operand != program::MmaOperand::kC;
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 16; ++column)
          EXPECT_EQ(places.count({row, column}), twice ? 2u : 1u) << gpu.arch;
      EXPECT_EQ(places.size(), twice ? 512u : 256u);
    }
}

TEST(AmdMatrix, Programs_ComputeTheKernel) {
  const GpuProduct products[] = {
      {.m = 64, .n = 64, .k = 64},
      {.batch = 2, .m = 40, .n = 24, .k = 40},
      {.m = 32, .n = 48, .k = 64, .a_turned = true},
      {.m = 32, .n = 48, .k = 64, .b_turned = true},
      {.m = 33, .n = 31, .k = 50, .a_turned = true, .b_turned = true},
      {.m = 64, .n = 32, .k = 32, .dtype = DType::kF16, .result = DType::kF16},
      {.m = 48, .n = 64, .k = 48, .epilogue = Epilogue::kResidual},
  };
  for (const Gpu& gpu : kGpus)
    for (const GpuProduct& product : products) {
      SCOPED_TRACE(std::string(gpu.arch) + " " + std::to_string(product.m));
      const Target target = AmdTarget(gpu.arch, kComputeUnits);
      Graph g, guards;
      const UOp* const sink = KernelOf(g, product);
      const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
      const auto plan = codegen::PlanMma(kernel, target, nullptr);
      ASSERT_TRUE(plan.ok() && plan->has_value()) << plan.status();
      EXPECT_EQ((*plan)->unit, gpu.unit);
      const auto program = program::ExpandMma(kernel, **plan);
      ASSERT_TRUE(program.ok()) << program.status();
      const Buffers start = RandomBuffers(sink, 1);
      Buffers want = start;
      ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
      for (const uint32_t seed : {1u, 2u}) {
        Buffers got = start;
        const program::RunReport report = program::Interpret(*program, got, {}, {.seed = seed});
        ASSERT_TRUE(report.ok()) << report.message << ToString(*program);
        ExpectClose(sink, got, want, 1e-2);
        if (HasFatalFailure()) return;
      }
    }
}

TEST(AmdMatrix, Objects_HaveTheInstructionAndStayInRegisters) {
  if (const std::string missing = MissingAmdgpuTool(); !missing.empty())
    GTEST_SKIP() << "no " << missing << " (Debian's lld-19, llvm-19)";
  for (const Gpu& gpu : kGpus)
    for (const DType dtype : {DType::kBF16, DType::kF16})
      for (const int64_t n : {64, 1024}) {
        SCOPED_TRACE(std::string(gpu.arch) + " " + std::string(Name(dtype)));
        Graph g;
        const auto kernel = CompileKernel(KernelOf(g, {.m = n, .n = n, .k = n, .dtype = dtype}),
                                          {.target = AmdTarget(gpu.arch, kComputeUnits)});
        ASSERT_TRUE(kernel.ok()) << kernel.status();
        const auto code = LinkAndDisassemble(kernel->object, gpu.arch);
        ASSERT_TRUE(code.ok()) << code.status();
        EXPECT_TRUE(absl::StrContains(code->text, gpu.instruction)) << code->text;
        EXPECT_EQ(code->private_bytes, 0);
        EXPECT_EQ(code->spills, 0);
      }
}

class AmdProductTest : public testing::TestWithParam<AmdProduct> {};

TEST_P(AmdProductTest, IsComputedByTheMatrixUnit_AndLinked) {
  if (const std::string missing = MissingAmdgpuTool(); !missing.empty())
    GTEST_SKIP() << "no " << missing << " (Debian's lld-19, llvm-19)";
  for (const Gpu& gpu : kGpus)
    EXPECT_EQ(TroubleOf(GetParam(), AmdTarget(gpu.arch, kComputeUnits)), "") << gpu.arch;
}

INSTANTIATE_TEST_SUITE_P(All, AmdProductTest, testing::ValuesIn(AmdProducts()),
                         [](const testing::TestParamInfo<AmdProduct>& of) {
                           std::string name = of.param.name;
                           name[name.find(' ')] = '_';
                           return name;
                         });

// A product of f32 stays with the threads.
TEST(AmdMatrix, OtherTypes_AreNotTaken) {
  Graph g;
  const UOp* const sink = KernelOf(g, {.m = 64, .n = 64, .k = 64, .dtype = DType::kF32});
  const codegen::LoopNest kernel = *codegen::AnalyzeKernel(sink);
  const Target target = AmdTarget("gfx942", kComputeUnits);
  const auto plan = codegen::PlanMma(kernel, target, nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->has_value());
  const std::vector<Opt> asked{{OptKind::kMma, 3, 64'064'032'222}};
  EXPECT_EQ(codegen::PlanMma(kernel, target, &asked).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard::test
