// The figures of convolutions by warpgroups, as bounds that none may leave.
#include "tests/bench/gpu_conv_figures.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/bench/gpu_code_bounds.h"

namespace outboard::bench {
namespace {

TEST(GpuConvFigures, AreWithinTheirBounds) {
  const auto figures = MeasureGpuConvolutions();
  ASSERT_TRUE(figures.ok()) << figures.status();
  for (const ConvFigure& figure : *figures) {
    std::printf("%s of %s by %s: %.3f wavefronts, %.3f of the sectors", figure.name.c_str(),
                std::string(Name(figure.dtype)).c_str(),
                figure.by_warpgroups ? "wgmma" : "mma.sync", figure.bank_ways,
                figure.sectors_ratio);
    if (figure.registers)
      std::printf(", %lld registers, %lld bytes spilled", static_cast<long long>(*figure.registers),
                  static_cast<long long>(*figure.spill_bytes));
    if (figure.instructions_per_product)
      std::printf(", %.2f instructions a product", *figure.instructions_per_product);
    if (figure.instructions_of_gather)
      std::printf(", %.0f of the loop that gathers", *figure.instructions_of_gather);
    std::printf("\n");
    EXPECT_EQ(figure.spill_bytes.value_or(0), 0);
    if (figure.dtype == DType::kBF16) {
      EXPECT_EQ(figure.bank_ways, 1.0);
    }
    if (figure.of_pictures && figure.by_warpgroups) continue;  // measured for comparison
    if (!figure.by_warpgroups) {
      EXPECT_LE(figure.instructions_per_product.value_or(0),
                figure.of_pictures            ? code_bounds::kHmmaOfPictures
                : figure.of_weights           ? code_bounds::kHmmaOfWeightGradients
                : figure.dtype == DType::kF32 ? code_bounds::kHmmaOfConvolutionsOfF32
                                              : code_bounds::kHmmaOfConvolutions);
      continue;
    }
    EXPECT_FALSE(figure.serialised);
    EXPECT_FALSE(figure.ignored);
    EXPECT_LE(figure.sectors_ratio, 1.05);
    EXPECT_LE(figure.instructions_per_product.value_or(0), code_bounds::kHgmmaOfConvolutions);
  }
}

}  // namespace
}  // namespace outboard::bench
