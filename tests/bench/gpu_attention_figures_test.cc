// The figures of attention on a GPU, as bounds that none may leave.
#include "tests/bench/gpu_attention_figures.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "tests/bench/gpu_code_bounds.h"

namespace outboard::bench {
namespace {

TEST(GpuAttentionFigures, AreWithinTheirBounds) {
  const auto figures = MeasureGpuAttention();
  ASSERT_TRUE(figures.ok()) << figures.status();
  std::printf(
      "compiled in %.1f ms; %.3f wavefronts an access to shared memory; a causal mask leaves %.3f",
      figures->compile_ms, figures->bank_ways, figures->causal_part);
  EXPECT_EQ(figures->bank_ways, 1.0) << figures->bank_ways_of;
  // Four tiles of rows and as many of steps, of which ten of sixteen are seen.
  EXPECT_DOUBLE_EQ(figures->causal_part, 10.0 / 16);
  if (figures->registers)
    std::printf("; %d registers", static_cast<int>(*figures->registers));
  else
    std::printf("; no ptxas");
  EXPECT_EQ(figures->spill_bytes.value_or(0), 0);
  if (!figures->instructions_per_hmma_64) {
    std::printf("; no nvdisasm\n");
    return;
  }
  std::printf("; %.2f and %.2f instructions an HMMA, heads of 64 and 128",
              *figures->instructions_per_hmma_64, *figures->instructions_per_hmma_128);
  std::printf("; %.2f and %.2f instructions an HGMMA", *figures->instructions_per_hgmma_64,
              *figures->instructions_per_hgmma_128);
  std::printf("; with a causal mask %.2f where it hides nothing, else %.2f\n",
              *figures->instructions_per_hgmma_whole, *figures->instructions_per_hgmma_cut);
  const auto expect_most = [](const char* name, const std::vector<double>& per_score, size_t loops,
                              double most) {
    std::printf("instructions a score of gradients, %s:", name);
    for (const double of_loop : per_score) std::printf(" %.1f", of_loop);
    std::printf("\n");
    EXPECT_EQ(per_score.size(), loops) << name;
    for (const double of_loop : per_score) EXPECT_LE(of_loop, most) << name;
  };
  const auto expect_gradients = [&](const GpuAttentionFigures::PerScore& of, size_t of_queries) {
    expect_most("queries, 64", of.queries_64, of_queries, code_bounds::kGradientOfQueries64);
    expect_most("queries, 128", of.queries_128, of_queries, code_bounds::kGradientOfQueries128);
    expect_most("keys, 64", of.keys_64, 2, code_bounds::kGradientOfKeys64);
    expect_most("keys, 128", of.keys_128, 2, code_bounds::kGradientOfKeys128);
  };
  expect_gradients(figures->per_score, 4);
  expect_gradients(figures->per_score_over_columns, 2);
  EXPECT_FALSE(figures->serialised);
  EXPECT_FALSE(figures->ignored);
  EXPECT_LE(*figures->instructions_per_hmma_64, code_bounds::kAttentionHmma64);
  EXPECT_LE(*figures->instructions_per_hmma_128, code_bounds::kAttentionHmma128);
  EXPECT_LE(*figures->instructions_per_hgmma_64, code_bounds::kAttentionHgmma64);
  EXPECT_LE(*figures->instructions_per_hgmma_128, code_bounds::kAttentionHgmma128);
  EXPECT_LE(*figures->instructions_per_hgmma_whole, code_bounds::kAttentionHgmma64);
}

}  // namespace
}  // namespace outboard::bench
