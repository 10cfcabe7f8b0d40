// Random numbers: the published generator over a counter in the cloud, the same for the same seed.
#include "client/ops/random/random.h"

#include <algorithm>
#include <cmath>

#include "compiler/reference/alu.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using RandomTest = ClientTest;

TEST_F(RandomTest, IsThreefryOverACounter) {
  Tensor::manual_seed(42);
  const auto first = Tensor::rand({3}).to_vector<double>();
  const auto second = Tensor::rand({2, 2}).to_vector<double>();
  const auto third = Tensor::randint({4}, -5, 100).to_vector<int64_t>();
  const auto wide = Tensor::rand({2}, DType::kF64).to_vector<double>();
  uint64_t counter = 0;
  const auto word = [&] { return reference::Threefry(counter++, 42); };
  const auto unit = [&] { return std::ldexp(static_cast<uint32_t>(word()) >> 8, -24); };
  for (const double x : first) EXPECT_EQ(x, unit());
  for (const double x : second) EXPECT_EQ(x, unit());
  for (const int64_t x : third)
    EXPECT_EQ(x, -5 + static_cast<int64_t>((word() & 0xffffffffu) * 105 >> 32));
  for (const double x : wide) EXPECT_EQ(x, std::ldexp(static_cast<double>(word() >> 11), -53));
}

TEST_F(RandomTest, DependsOnTheSeedAndTheOrderOfCallsOnly) {
  const auto draw = [](uint64_t seed, bool realize_early) {
    Tensor::manual_seed(seed);
    Tensor a = Tensor::rand({4});
    if (realize_early) a.realize();
    const Tensor b = Tensor::uniform({4}, -2, 3);
    const auto later = b.to_vector<float>();
    auto all = a.to_vector<float>();
    all.insert(all.end(), later.begin(), later.end());
    return all;
  };
  EXPECT_EQ(draw(1, false), draw(1, true));
  EXPECT_NE(draw(1, false), draw(2, false));
}

TEST_F(RandomTest, ALazyTensorIsDrawnOnce) {
  const Tensor a = Tensor::rand({4}), twice = a * 2;
  const auto doubled = twice.to_vector<float>(), once = a.to_vector<float>();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(doubled[i], 2 * once[i]);
  EXPECT_NE((Tensor::rand({4}) - a).abs().max().item(), 0);
}

TEST_F(RandomTest, DrawingAgainIsTheSameGraph) {
  for (int i = 0; i < 5; ++i) (void)Tensor::rand({4}).sum().item();
  EXPECT_EQ(session->graph_count(), 1u);
}

TEST_F(RandomTest, PermutationsAndSamples) {
  std::vector<int64_t> places = randperm(50).to_vector<int64_t>();
  EXPECT_FALSE(std::is_sorted(places.begin(), places.end()));
  std::sort(places.begin(), places.end());
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(places[i], i);
  const Tensor weights = Tensor::from<float>({0, 1, 0, 3, 4, 0});
  std::vector<double> shares(6);
  for (const int64_t place : multinomial(weights, 4000, true).to_vector<int64_t>())
    shares[place] += 1. / 4000;
  const double wanted[] = {0, 0.125, 0, 0.375, 0.5, 0};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(shares[i], wanted[i], 0.03);
  const Tensor rows = Tensor::stack({weights, weights.flip({0})});
  std::vector<int64_t> drawn = multinomial(rows, 3).to_vector<int64_t>();
  std::sort(drawn.begin(), drawn.begin() + 3);
  std::sort(drawn.begin() + 3, drawn.end());
  EXPECT_EQ(drawn, (std::vector<int64_t>{1, 3, 4, 1, 2, 4}));
}

TEST_F(RandomTest, Distributions) {
  const auto moments = [](const Tensor& t) { return std::pair(t.mean().item(), t.var().item()); };
  const auto [mean, var] = moments(Tensor::randn({20000}));
  EXPECT_NEAR(mean, 0, 0.04);
  EXPECT_NEAR(var, 1, 0.06);
  const auto [u_mean, u_var] = moments(Tensor::uniform({20000}, -1, 3));
  EXPECT_NEAR(u_mean, 1, 0.05);
  EXPECT_NEAR(u_var, 16. / 12, 0.05);
  const Tensor k = Tensor::kaiming_uniform({2000, 10}, 0);
  EXPECT_LE(k.abs().max().item(), std::sqrt(0.6));
  EXPECT_NEAR(k.var().item(), 0.2, 0.01);
  EXPECT_NEAR(kaiming_normal({2000, 10}, 0).var().item(), 0.2, 0.01);
  const auto [n_mean, n_var] = moments(normal({20000}, 5, 0.5));
  EXPECT_NEAR(n_mean, 5, 0.02);
  EXPECT_NEAR(n_var, 0.25, 0.02);
  EXPECT_LE(scaled_uniform({100, 100}).abs().max().item(), 0.01);
  const Tensor glorot = glorot_uniform({20, 4000});
  EXPECT_LE(glorot.abs().max().item(), std::sqrt(6 / 4020.));
  EXPECT_NEAR(glorot.var().item() * 4020, 2, 0.1);
  const Tensor bytes = randint({6000}, -128, 128, DType::kI8);
  EXPECT_EQ(bytes.min().item(), -128);
  EXPECT_EQ(bytes.max().item(), 127);
  const Tensor die = Tensor::randint({6000}, 1, 7);
  EXPECT_EQ(die.min().item(), 1);
  EXPECT_EQ(die.max().item(), 6);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2}) {
    const Tensor t = Tensor::rand({1000}, dtype);
    EXPECT_EQ(t.dtype(), dtype);
    EXPECT_LT(t.max().item(), 1) << Name(dtype);
    EXPECT_GE(t.min().item(), 0);
  }
}

TEST_F(RandomTest, Dropout) {
  const Tensor x = Tensor::ones({10000});
  ExpectNear(x.dropout(0.5).sum(), {10000});
  const TrainingMode mode(true);
  const Tensor y = x.dropout(0.25);
  const double kept = (y != 0).sum().item();
  EXPECT_NEAR(kept, 7500, 200);
  EXPECT_NEAR(y.sum().item(), kept / 0.75, 0.01 * kept);
  ExpectNear(x.dropout(1).sum(), {0});
}

}  // namespace
}  // namespace outboard
