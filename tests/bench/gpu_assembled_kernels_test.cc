// Kernels with matrix units, through NVIDIA's assembler: nothing spilled, nothing in a thread's own
// memory, no product that waits for the one before. Goldens: tests/compiler/golden_assembled_test.
#include "tests/bench/gpu_assembled_kernels.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/match.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::bench {
namespace {

// Bytes that these kernels spill at most. All others spill none.
int64_t KnownSpill(const std::string& kernel) {
  // The assembler gives it 32 registers; it is as wrong of one in MNIST's step
  // (nvptx_programs_test).
  if (absl::StartsWith(kernel, "attention_bf16_128_causal_gradients 2 ")) return 16;
  if (absl::StartsWith(kernel, "attention_f16_128_gradients 2 ")) return 24;
  // By mma.sync, which is what sm_80, sm_89 and sm_90 have for heads of 256.
  if (absl::StartsWith(kernel, "attention_f16_256_causal_gradients 1 ")) return 56;
  if (absl::StartsWith(kernel, "attention_f16_256_gradients 1 ")) return 64;
  // On sm_90 and on sm_89 alone.
  if (absl::StartsWith(kernel, "attention_f16_128_causal_gradients 1 ")) return 32;
  if (absl::StartsWith(kernel, "matmul_f32_nn 0 ")) return 32;
  if (absl::StartsWith(kernel, "matmul_f32_tt 0 ")) return 32;
  if (absl::StartsWith(kernel, "conv_64_64_3_1 0 ")) return 64;
  return 0;
}

class GpuAssembledKernels : public testing::TestWithParam<const char*> {};

TEST_P(GpuAssembledKernels, KeepAllInRegisters) {
  const std::string ptxas = test::FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  const AssembledKernels all = AssembleAll(MatrixPrograms(), GetParam(), ptxas);
  std::printf("%s: %d kernels, %d by warpgroups, at most %d registers\n", GetParam(), all.kernels,
              all.by_warpgroups, static_cast<int>(all.registers_max));
  EXPECT_GE(all.kernels, 60);
  EXPECT_EQ(all.assembled, all.kernels) << all.failures;
  for (const auto& [kernel, bytes] : all.spills) EXPECT_LE(bytes, KnownSpill(kernel)) << kernel;
  EXPECT_EQ(all.serialised, 0);
  EXPECT_EQ(all.by_warpgroups > 0, std::string(GetParam()) == "sm_90a");
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuAssembledKernels,
                         testing::Values("sm_80", "sm_89", "sm_90", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace outboard::bench
