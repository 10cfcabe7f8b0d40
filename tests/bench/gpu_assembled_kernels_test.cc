// Kernels with matrix units, through NVIDIA's assembler: nothing spilled, nothing in a thread's own
// memory, no product that waits for the one before. Goldens: tests/compiler/golden_assembled_test.
#include "tests/bench/gpu_assembled_kernels.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/string_view.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::bench {
namespace {

// Bytes that these kernels spill at most, on the kind of GPU that is named. All others spill none.
// Gradients of keys and values by mma.sync: of the numbers that lie in registers while a division
// is called as a function, the assembler spills a few indices (docs/decisions/198).
int64_t KnownSpill(absl::string_view kernel) {
  struct Known {
    absl::string_view kernel;
    int64_t bytes;
  };
  static constexpr Known kKnown[] = {
      {"attention_f16_256_gradients 1 for sm_80", 64},
      {"attention_f16_256_causal_gradients 1 for sm_80", 56},
      {"attention_f16_256_gradients 1 for sm_89", 56},
      {"attention_f16_128_causal_gradients 1 for sm_90", 32},
  };
  for (const Known& known : kKnown)
    if (kernel == known.kernel) return known.bytes;
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
