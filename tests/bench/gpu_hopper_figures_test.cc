// The figures of products by warpgroups, as bounds that none may leave.
#include "tests/bench/gpu_hopper_figures.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>

#include "tests/bench/gpu_code_bounds.h"

namespace outboard::bench {
namespace {

TEST(GpuHopperFigures, AreWithinTheirBounds) {
  const auto figures = MeasureGpuHopper();
  ASSERT_TRUE(figures.ok()) << figures.status();
  if (!figures->spill_bytes) GTEST_SKIP() << "no ptxas (OUTBOARD_PTXAS, or in PATH)";
  std::printf("%lld bytes spilled, %lld serialised", static_cast<long long>(*figures->spill_bytes),
              static_cast<long long>(*figures->serialised));
  EXPECT_EQ(*figures->spill_bytes, 0);
  EXPECT_EQ(*figures->serialised, 0);
  EXPECT_EQ(*figures->ignored, 0);
  if (!figures->instructions_per_hgmma)
    GTEST_SKIP() << "no nvdisasm (OUTBOARD_NVDISASM, or in PATH)";
  std::printf(", %.2f instructions an HGMMA\n", *figures->instructions_per_hgmma);
  EXPECT_LE(*figures->instructions_per_hgmma, code_bounds::kHgmma);
  ASSERT_TRUE(figures->instructions_per_hgmma_f32.has_value());
  std::printf("%.2f instructions an HGMMA of f32\n", *figures->instructions_per_hgmma_f32);
  EXPECT_LE(*figures->instructions_per_hgmma_f32, code_bounds::kHgmmaOfF32);
  ASSERT_TRUE(figures->instructions_per_hgmma_f32_across.has_value());
  std::printf("%.2f where it lies across the steps\n", *figures->instructions_per_hgmma_f32_across);
  EXPECT_LE(*figures->instructions_per_hgmma_f32_across, code_bounds::kHgmmaOfF32Across);
  ASSERT_TRUE(figures->instructions_per_qgmma.has_value());
  std::printf("%.2f instructions a QGMMA\n", *figures->instructions_per_qgmma);
  EXPECT_LE(*figures->instructions_per_qgmma, code_bounds::kQgmma);
}

// Results of f32 meet a bank twice on their way to boxes (decision 095).
TEST(GpuHopperFigures, OfMemory_AreWithinTheirBounds) {
  for (const auto& [dtype, ways] : {std::pair(DType::kBF16, code_bounds::kWgmmaBankWays),
                                    {DType::kF32, code_bounds::kWgmmaBankWaysOfF32}}) {
    const auto memory = MeasureHopperMemory(dtype);
    ASSERT_TRUE(memory.ok()) << memory.status();
    std::printf("%s: %.3f wavefronts, %.3f of the sectors\n", std::string(Name(dtype)).c_str(),
                memory->bank_ways, memory->sectors_ratio);
    EXPECT_LE(memory->bank_ways, ways) << Name(dtype);
    EXPECT_LE(memory->sectors_ratio, 1.05) << Name(dtype);
  }
}

}  // namespace
}  // namespace outboard::bench
