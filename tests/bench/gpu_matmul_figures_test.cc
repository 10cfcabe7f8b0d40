// The figures of a large product on a GPU, as bounds that none may leave.
#include "tests/bench/gpu_matmul_figures.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/bench/gpu_code_bounds.h"

namespace outboard::bench {
namespace {

TEST(GpuMatmulFigures, AreWithinTheirBounds) {
  const auto figures = MeasureGpuMatmul();
  ASSERT_TRUE(figures.ok()) << figures.status();
  std::printf(
      "compiled in %.1f ms; %.3f wavefronts an access to shared memory; %.3f of the sectors",
      figures->compile_ms, figures->bank_ways, figures->sectors_ratio);
  std::printf("; convolution: %.3f wavefronts, %.3f of the sectors", figures->conv_bank_ways,
              figures->conv_sectors_ratio);
  EXPECT_EQ(figures->conv_bank_ways, 1.0);
  EXPECT_LE(figures->conv_sectors_ratio, 1.05);
  EXPECT_EQ(figures->bank_ways, 1.0);
  EXPECT_LE(figures->sectors_ratio, 1.05);
  if (!figures->spill_bytes) std::printf("; no ptxas");
  EXPECT_EQ(figures->spill_bytes.value_or(0), 0);
  if (!figures->instructions_per_hmma) {
    std::printf("; no nvdisasm\n");
    return;
  }
  std::printf("; %.2f instructions an HMMA\n", *figures->instructions_per_hmma);
  EXPECT_LE(*figures->instructions_per_hmma, code_bounds::kHmma);
  std::printf("%.2f of f32\n", *figures->instructions_per_hmma_f32);
  EXPECT_LE(*figures->instructions_per_hmma_f32, code_bounds::kHmmaOfF32);
}

}  // namespace
}  // namespace outboard::bench
