// Kernels with matrix units, and those of training steps of GPT-2, through NVIDIA's assembler:
// nothing spilled, nothing in a thread's own memory, no product that waits for the one before.
// Goldens: tests/compiler/golden_assembled_test. And of kernels with matrix units and of the
// goldens, that no plan is given up.
#include "tests/bench/gpu_assembled_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/compiler/ptx_assembler.h"

namespace outboard::bench {
namespace {

class GpuAssembledKernels : public testing::TestWithParam<const char*> {};

TEST_P(GpuAssembledKernels, KeepAllInRegisters) {
  const std::string ptxas = test::FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  std::vector<GpuProgram> programs = MatrixPrograms();
  for (GpuProgram& step : Gpt2StepPrograms()) programs.push_back(std::move(step));
  const AssembledKernels all = AssembleAll(programs, GetParam(), ptxas);
  std::printf("%s: %d kernels, %d by warpgroups, at most %d registers\n", GetParam(), all.kernels,
              all.by_warpgroups, static_cast<int>(all.registers_max));
  EXPECT_GE(all.kernels, 130);
  EXPECT_EQ(all.assembled, all.kernels) << all.failures;
  for (const auto& [kernel, bytes] : all.spills) EXPECT_EQ(bytes, 0) << kernel;
  EXPECT_EQ(all.serialised, 0);
  EXPECT_EQ(all.ignored, 0);
  EXPECT_EQ(all.by_warpgroups > 0, std::string(GetParam()) == "sm_90a");
}

// A kernel is compiled by the plan that was chosen for it: what takes the place of one that does
// not fit may take many times its time.
TEST_P(GpuAssembledKernels, AreCompiledByThePlansThatWereChosen) {
  EXPECT_THAT(PlansGivenUp(GoldenPrograms(), GetParam()), testing::IsEmpty());
  EXPECT_THAT(PlansGivenUp(MatrixPrograms(), GetParam()), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuAssembledKernels,
                         testing::Values("sm_80", "sm_89", "sm_90", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace outboard::bench
