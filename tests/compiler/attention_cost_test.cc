// Which scores of small numbers processors compute again (compiler/schedule/attention.cc): of
// matrices as a model's layers have them, rounded sums, and of 8 bits. The others are in
// Attention.ScoresAreRecomputedByCost.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/ops/product/product.h"
#include "client/tensor/tensor.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

constexpr int64_t kWidth = 64, kLength = 512;

size_t KernelsOf(const std::function<std::vector<Tensor>()>& program, const Target& target) {
  Graph recorded, graph;
  return ValueOrDie(schedule::MakeSchedule(graph, RecordResults(recorded, program).sink, target))
      .kernels.size();
}

Target WithTiles() {
  Target tiles = TestTarget();
  tiles.bf16 = Bf16Products::kTiles;
  return tiles;
}

// Of queries, keys and values that are products of rows and weights; with `has_places` queries and
// keys are then multiplied in f32, and rounded (RoPE).
std::vector<Tensor> Layer(DType dtype, bool causal, bool has_places) {
  constexpr int64_t kTerms = 256;
  const Tensor rows = Input({kLength, kTerms}, dtype);
  const Tensor places = Input({kLength, kWidth}, DType::kF32);
  const auto sums = [&] { return rows.matmul(Input({kTerms, kWidth}, dtype)); };
  const auto moved = [&](const Tensor& x) {
    return has_places ? (x.cast(DType::kF32) * places).cast(dtype) : x;
  };
  const Tensor query = moved(sums()), key = moved(sums());
  return {scaled_dot_product_attention(query, key, sums(), {.is_causal = causal})};
}

TEST(AttentionCost, RoundedSums_CountAsWhatTheyAreRoundedTo) {
  struct Case {
    DType dtype;
    bool causal, tiles;
    size_t kernels;  // of attention: 3 with scores kept
  };
  const Case cases[] = {
      {DType::kBF16, false, true, 3}, {DType::kBF16, true, true, 3}, {DType::kBF16, true, false, 1},
      {DType::kF16, false, false, 3}, {DType::kF16, true, true, 1},
  };
  for (const Case& c : cases)
    for (const bool has_places : {false, true}) {
      SCOPED_TRACE(absl::StrCat(std::string(Name(c.dtype)), c.causal ? ", causal" : "",
                                c.tiles ? ", tiles" : "", has_places ? ", places" : ""));
      const size_t sums = 3;
      EXPECT_EQ(KernelsOf([&] { return Layer(c.dtype, c.causal, has_places); },
                          c.tiles ? WithTiles() : TestTarget()),
                sums + c.kernels);
    }
}

// Panels cast them wherever they read them.
TEST(AttentionCost, NumbersOf8Bits_CountAsThoseOf16) {
  const auto attention = [](DType dtype, bool causal) -> std::vector<Tensor> {
    const auto matrix = [&] { return Input({kLength, kWidth}, dtype).cast(DType::kF32); };
    const Tensor query = matrix(), key = matrix();
    return {scaled_dot_product_attention(query, key, matrix(), {.is_causal = causal})};
  };
  for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kF8E5M2}) {
    SCOPED_TRACE(std::string(Name(dtype)));
    EXPECT_EQ(KernelsOf([&] { return attention(dtype, false); }, TestTarget()), 3u);
    EXPECT_EQ(KernelsOf([&] { return attention(dtype, true); }, TestTarget()), 1u);
  }
  EXPECT_EQ(KernelsOf([&] { return attention(DType::kF32, false); }, TestTarget()), 1u);
}

}  // namespace
}  // namespace outboard::test
