// Operators beyond their rows in operators/: corners, promotion, many windows.
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/elementwise/promote.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using OpsTest = ClientTest;
using Values = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor F64(const Values& values, const Dims& dims = {}) {
  return Tensor::from<double>(values, dims);
}

void ExpectSame(const Tensor& tensor, const Values& wanted) {
  const Values values = tensor.to_vector<double>();
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i]))
      EXPECT_TRUE(std::isnan(values[i])) << "element " << i;
    else
      EXPECT_EQ(values[i], wanted[i]) << "element " << i;
  }
}

TEST_F(OpsTest, Corners) {
  ExpectSame(F64({kNan, kInf, -kInf, -0.0}).isnan(), {1, 0, 0, 0});
  ExpectSame(F64({kNan, 2}).relu(), {kNan, 2});
  ExpectSame(F64({kNan, 2}).sign(), {kNan, 1});
  ExpectSame(F64({800, -800}).softplus(), {800, 0});
  ExpectSame(F64({kNan, 1, 2}) <= 1, {0, 1, 0});
  ExpectSame(F64({kNan, 1, 2}) >= 1, {0, 1, 1});
  ExpectSame(Tensor::from<int8_t>({-128, 5}).min(), {-128});
  ExpectSame(Tensor::from<uint8_t>({0, 200}).min(), {0});
  ExpectSame(F64({1000, 1000}).softmax(), {0.5, 0.5});
  ExpectSame(F64({3, kNan, 9}).argmax(), {1});
  ExpectSame(F64({3, 9, 9}).argmax(), {1});
  ExpectSame(F64({-0.0}, {1}).pad({{1, 1}}, kInf), {kInf, -0.0, kInf});
  EXPECT_TRUE(std::signbit(F64({-0.0}, {1}).pad({{1, 1}}, kInf).to_vector<double>()[1]));
  EXPECT_TRUE(std::isnan(Tensor::zeros({0}).mean().item()));
  ExpectSame(Tensor::zeros({0, 3}).sum({0}), {0, 0, 0});
}

TEST_F(OpsTest, BinaryBroadcastAndPromotion) {
  const Tensor a = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor row = Tensor::from<int32_t>({10, 20, 30}),
               column = Tensor::from<int32_t>({1, 2}, {2, 1});
  ExpectSame(a + row, {11, 22, 33, 14, 25, 36});
  ExpectSame(a - column, {0, 1, 2, 2, 3, 4});
  ExpectSame(column * row, {10, 20, 30, 20, 40, 60});
  ExpectSame(a % 4, {1, 2, 3, 0, 1, 2});
  ExpectSame(a.idiv(2), {0, 1, 1, 2, 2, 3});
  ExpectSame((-a).idiv(2), {0, -1, -1, -2, -2, -3});
  ExpectSame(a / 2, {0.5, 1, 1.5, 2, 2.5, 3});
  EXPECT_EQ((a / 2).dtype(), DType::kF32);
  EXPECT_EQ((a + 1).dtype(), DType::kI32);
  EXPECT_EQ((a + 1.5).dtype(), DType::kF32);
  EXPECT_EQ((Tensor::ones({1}, DType::kF16) * 2.5).dtype(), DType::kF16);
  EXPECT_EQ((Tensor::ones({1}, DType::kU8) + Tensor::ones({1}, DType::kI8)).dtype(), DType::kI16);
  EXPECT_EQ((a < 3).dtype(), DType::kBool);
  ExpectSame(a < 3, {1, 1, 0, 0, 0, 0});
  ExpectSame(a > 3, {0, 0, 0, 1, 1, 1});
  ExpectSame(a <= 3, {1, 1, 1, 0, 0, 0});
  ExpectSame(a >= 3, {0, 0, 1, 1, 1, 1});
  ExpectSame(a == 3, {0, 0, 1, 0, 0, 0});
  ExpectSame(a != 3, {1, 1, 0, 1, 1, 1});
  ExpectSame(3 - a, {2, 1, 0, -1, -2, -3});
  ExpectSame(6 / a.cast(DType::kF64), {6, 3, 2, 1.5, 1.2, 1});
  ExpectSame(a.maximum(3), {3, 3, 3, 4, 5, 6});
  ExpectSame(a.minimum(3), {1, 2, 3, 3, 3, 3});
  ExpectSame(F64({1, 5}).minimum(F64({3, 2})), {1, 2});
  ExpectSame((a & 1) | 4, {5, 4, 5, 4, 5, 4});
  ExpectSame(a ^ 1, {0, 3, 2, 5, 4, 7});
  ExpectSame(a << 1, {2, 4, 6, 8, 10, 12});
  ExpectSame(a >> 1, {0, 1, 1, 2, 2, 3});
  ExpectSame((a < 3) + (a > 5), {1, 1, 0, 0, 0, 1});
  ExpectSame((a < 3).where(a, -1), {1, 2, -1, -1, -1, -1});
  ExpectSame((a < 3).where(1, 0), {1, 1, 0, 0, 0, 0});
  ExpectSame((a < 3).logical_not(), {0, 0, 1, 1, 1, 1});
  Tensor b = a;
  b += 1;
  b *= 2;
  ExpectSame(b, {4, 6, 8, 10, 12, 14});
  ExpectSame(a, {1, 2, 3, 4, 5, 6});
}

// What a float that both became would round: 2^63 + 1 is not 2^63, and -1 is not 2^64 - 1.
TEST_F(OpsTest, Binary_U64BesideSigned_ComparesExactly) {
  constexpr uint64_t kHalf = uint64_t{1} << 63;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Tensor u = Tensor::from<uint64_t>({0, ~uint64_t{0}, kHalf, kHalf - 1, 7, 7, kHalf - 2});
  const Tensor s = Tensor::from<int64_t>({-1, -1, -kMost - 1, kMost, 8, 7, kMost});
  ExpectSame(u == s, {0, 0, 0, 1, 0, 1, 0});
  ExpectSame(s == u, {0, 0, 0, 1, 0, 1, 0});
  ExpectSame(u != s, {1, 1, 1, 0, 1, 0, 1});
  ExpectSame(s != u, {1, 1, 1, 0, 1, 0, 1});
  ExpectSame(u < s, {0, 0, 0, 0, 1, 0, 1});
  ExpectSame(s < u, {1, 1, 1, 0, 0, 0, 0});
  ExpectSame(u > s, {1, 1, 1, 0, 0, 0, 0});
  ExpectSame(s > u, {0, 0, 0, 0, 1, 0, 1});
  ExpectSame(u <= s, {0, 0, 0, 1, 1, 1, 1});
  ExpectSame(s <= u, {1, 1, 1, 1, 0, 1, 0});
  ExpectSame(u >= s, {1, 1, 1, 1, 0, 1, 0});
  ExpectSame(s >= u, {0, 0, 0, 1, 1, 1, 1});
  ExpectSame(Tensor::from<uint64_t>({3, 5}) > Tensor::from<int8_t>({-3, 5}), {1, 0});
  ExpectSame(isclose(Tensor::from<uint64_t>({(1 << 24) + 1, 7}),
                     Tensor::from<int32_t>({1 << 24, 7}), 0, 0),
             {0, 1});
}

TEST_F(OpsTest, Binary_U64BesideSigned_IsTheDefaultFloat) {
  const Tensor u = Tensor::from<uint64_t>({3, 200}), s = Tensor::from<int32_t>({-5, 2});
  for (const Tensor& y : {u + s, s + u}) EXPECT_EQ(y.dtype(), DType::kF32);
  ExpectSame(u + s, {-2, 202});
  ExpectSame(u.maximum(s), {3, 200});
  ExpectSame(Tensor::cat({u, s}), {3, 200, -5, 2});
  SetDefaultFloat(DType::kF64);
  EXPECT_EQ((u * s).dtype(), DType::kF64);
  SetDefaultFloat(DType::kF32);
  EXPECT_EQ(StatusOf([&] { u& s; }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf([&] { u << s; }).code(), absl::StatusCode::kInvalidArgument);
}

// The sum of a matrix product asks for a type beside that of the factors: no float rounds it.
TEST_F(OpsTest, Matmul_U64SummedAsI64_Wraps) {
  const Tensor u = Tensor::from<uint64_t>({~uint64_t{0}, uint64_t{1} << 53}, {1, 2});
  const Tensor v = Tensor::from<uint64_t>({3, 1}, {2, 1});
  EXPECT_EQ(u.matmul(v, DType::kI64).item<int64_t>(), (int64_t{1} << 53) - 3);
}

TEST_F(OpsTest, Reductions) {
  const Tensor a = F64({1, -2, 3, 4, 0, 6}, {2, 3});
  ExpectSame(a.sum(), {12});
  ExpectSame(a.sum({0}), {5, -2, 9});
  ExpectSame(a.sum({-1}), {2, 10});
  EXPECT_EQ(a.sum({-1}, true).shape(), (Dims{2, 1}));
  ExpectSame(a.prod({1}), {-6, 0});
  ExpectNear(a.mean({1}), {2. / 3, 10. / 3}, 1e-14);
  ExpectSame(a.max({0}), {4, 0, 6});
  ExpectSame(a.min({1}), {-2, 0});
  ExpectNear(a.var({1}), {19. / 3, 28. / 3}, 1e-14);
  ExpectNear(a.std({1}, false, 0), {std::sqrt(38. / 9), std::sqrt(56. / 9)}, 1e-14);
  ExpectSame(a.argmax(1), {2, 2});
  ExpectSame(a.argmin(0), {0, 0, 0});
  ExpectSame(a.argmax(), {5});
  ExpectSame((a > 3).any({0}), {1, 0, 1});
  ExpectSame((a > -3).all(), {1});
  const Tensor bytes = Tensor::from<uint8_t>({200, 200});
  EXPECT_EQ(bytes.sum().dtype(), DType::kU32);
  ExpectSame(bytes.sum(), {400});
  ExpectSame((a > 0).sum(), {4});
  EXPECT_EQ(bytes.mean().dtype(), DType::kF32);
  // 4096 ones do not add up in f16 itself, which stops at 2048.
  ExpectSame(Tensor::ones({4096}, DType::kF16).sum(), {4096});
  const double log_sum = std::log(std::exp(1) + std::exp(-2) + std::exp(3));
  ExpectNear(a.logsumexp(), {log_sum, std::log(std::exp(4) + 1 + std::exp(6))}, 1e-12);
  ExpectNear(a.log_softmax()[0], {1 - log_sum, -2 - log_sum, 3 - log_sum}, 1e-12);
  ExpectNear(a.softmax().sum({1}), {1, 1}, 1e-12);
}

TEST_F(OpsTest, IndexAndOneHot) {
  const Tensor table = Tensor::arange(8).reshape({4, 2});
  ExpectSame(table[Tensor::from<int32_t>({3, 0, 3})], {6, 7, 0, 1, 6, 7});
  ExpectSame(table[Tensor::from<int64_t>({1, 4, -5, (int64_t{1} << 32) + 1}, {2, 2})],
             {2, 3, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(table[Tensor::from<uint8_t>({1}, {1, 1})].shape(), (Dims{1, 1, 2}));
  ExpectSame(table.take(Tensor::from<int32_t>({1, 1}), 1), {1, 1, 3, 3, 5, 5, 7, 7});
  ExpectSame((table > 2)[Tensor::from<int32_t>({0, 2})], {0, 0, 1, 1});
  ExpectSame(Tensor::from<int32_t>({2, 0, 5}).one_hot(3), {0, 0, 1, 1, 0, 0, 0, 0, 0});
}

Values Random(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<> uniform(-1, 1);
  Values values(count);
  for (double& v : values) v = uniform(random);
  return values;
}

TEST_F(OpsTest, MatMul) {
  const auto a = Random(2 * 3 * 4, 1), b = Random(2 * 4 * 5, 2);
  Values wanted;
  for (int i = 0; i < 2; ++i)
    for (int n = 0; n < 3; ++n)
      for (int m = 0; m < 5; ++m) {
        double sum = 0;
        for (int k = 0; k < 4; ++k) sum += a[(i * 3 + n) * 4 + k] * b[(i * 4 + k) * 5 + m];
        wanted.push_back(sum);
      }
  ExpectNear(F64(a, {2, 3, 4}).matmul(F64(b, {2, 4, 5})), wanted, 1e-12);
  EXPECT_EQ(F64(a, {2, 3, 4}).matmul(F64(Random(4, 3))).shape(), (Dims{2, 3}));
  EXPECT_EQ(F64(Random(3, 3)).matmul(F64(a, {2, 3, 4})).shape(), (Dims{2, 4}));
  ExpectSame(Tensor::from<int32_t>({1, 2, 3}).dot(Tensor::from<int32_t>({4, 5, 6})), {32});
  EXPECT_EQ(F64(a, {1, 2, 3, 4}).matmul(F64(b, {2, 4, 5})).shape(), (Dims{1, 2, 3, 5}));
}

TEST_F(OpsTest, Conv2d) {
  struct Case {
    int64_t b, c, h, w, o, kh, kw;
    Conv2dOptions options;
  };
  const std::vector<Case> cases = {
      {2, 3, 6, 5, 4, 3, 2, {}},
      {1, 2, 7, 7, 2, 3, 3, {.stride = 2, .padding = 1}},
      {1, 2, 8, 7, 3, 2, 3, {.dilation = 2}},
      {2, 4, 5, 5, 6, 3, 3, {.groups = 2, .padding = 2}},
      {1, 3, 6, 6, 3, 2, 2, {.groups = 3, .stride = 2}},
      {1, 1, 4, 4, 2, 1, 1, {}},
  };
  for (const Case& c : cases) {
    const int64_t s = c.options.stride.h, d = c.options.dilation.h, p = c.options.padding.h;
    const int64_t in = c.c / c.options.groups;
    const auto x = Random(c.b * c.c * c.h * c.w, 3), w = Random(c.o * in * c.kh * c.kw, 4),
               bias = Random(c.o, 5);
    const int64_t oh = (c.h + 2 * p - d * (c.kh - 1) - 1) / s + 1;
    const int64_t ow = (c.w + 2 * p - d * (c.kw - 1) - 1) / s + 1;
    Values wanted;
    for (int64_t b = 0; b < c.b; ++b)
      for (int64_t o = 0; o < c.o; ++o)
        for (int64_t i = 0; i < oh; ++i)
          for (int64_t j = 0; j < ow; ++j) {
            double sum = bias[o];
            for (int64_t k = 0; k < in; ++k)
              for (int64_t y = 0; y < c.kh; ++y)
                for (int64_t z = 0; z < c.kw; ++z) {
                  const int64_t ih = i * s + y * d - p, iw = j * s + z * d - p;
                  if (ih < 0 || ih >= c.h || iw < 0 || iw >= c.w) continue;
                  const int64_t channel = o / (c.o / c.options.groups) * in + k;
                  sum += x[((b * c.c + channel) * c.h + ih) * c.w + iw] *
                         w[((o * in + k) * c.kh + y) * c.kw + z];
                }
            wanted.push_back(sum);
          }
    const Tensor y =
        F64(x, {c.b, c.c, c.h, c.w}).conv2d(F64(w, {c.o, in, c.kh, c.kw}), F64(bias), c.options);
    EXPECT_EQ(y.shape(), (Dims{c.b, c.o, oh, ow}));
    ExpectNear(y, wanted, 1e-12);
  }
}

TEST_F(OpsTest, Pooling) {
  const auto x = Random(2 * 7 * 6, 9);
  const Tensor t = F64(x, {1, 2, 7, 6});
  for (const Pool2dOptions o : {Pool2dOptions{}, Pool2dOptions{.kernel = 3, .stride = 2},
                                Pool2dOptions{.kernel = 3, .stride = 2, .padding = 1},
                                Pool2dOptions{.kernel = 2, .stride = 1, .dilation = 2}}) {
    const int64_t k = o.kernel.h, s = o.stride.h == 0 ? k : o.stride.h;
    const int64_t d = o.dilation.h, p = o.padding.h;
    const int64_t oh = (7 + 2 * p - d * (k - 1) - 1) / s + 1;
    const int64_t ow = (6 + 2 * p - d * (k - 1) - 1) / s + 1;
    Values most, mean;
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t i = 0; i < oh; ++i)
        for (int64_t j = 0; j < ow; ++j) {
          double best = -kInf, sum = 0;
          for (int64_t y = 0; y < k; ++y)
            for (int64_t z = 0; z < k; ++z) {
              const int64_t ih = i * s + y * d - p, iw = j * s + z * d - p;
              if (ih < 0 || ih >= 7 || iw < 0 || iw >= 6) continue;
              best = std::max(best, x[(c * 7 + ih) * 6 + iw]);
              sum += x[(c * 7 + ih) * 6 + iw];
            }
          most.push_back(best);
          mean.push_back(sum / static_cast<double>(k * k));
        }
    ExpectSame(t.max_pool2d(o), most);
    ExpectNear(t.avg_pool2d(o), mean, 1e-12);
  }
}

TEST_F(OpsTest, Losses) {
  const Tensor x = F64({1, 2, 3, 0, 0, 5}, {2, 3});
  const double a = -(1 - std::log(std::exp(1) + std::exp(2) + std::exp(3)));
  const double b = -(5 - std::log(2 + std::exp(5)));
  ExpectNear(x.sparse_categorical_crossentropy(Tensor::from<uint8_t>({0, 2})), {(a + b) / 2},
             1e-12);
  ExpectNear(x.sparse_categorical_crossentropy(Tensor::from<int64_t>({0, -1})), {a}, 1e-12);
  const Values log_p = x.log_softmax().to_vector<double>();
  const double even = -(log_p[0] + log_p[1] + log_p[2]) / 3;
  ExpectNear(x[0].unsqueeze(0).sparse_categorical_crossentropy(Tensor::from<int32_t>({0}), -1, 0.1),
             {0.9 * a + 0.1 * even}, 1e-12);
  ExpectNear(F64({1, 2}).mse_loss(F64({3, 5})), {6.5}, 1e-12);
  const auto bce = [](double z, double t) {
    const double s = 1 / (1 + std::exp(-z));
    return -(t * std::log(s) + (1 - t) * std::log(1 - s));
  };
  ExpectNear(F64({0.5, -2}).binary_crossentropy_logits(F64({1, 0})),
             {(bce(0.5, 1) + bce(-2, 0)) / 2}, 1e-12);
  const Tensor n = F64({1, 2, 4}, {1, 3}).layernorm();
  ExpectNear(n.sum(), {0}, 1e-9);
  ExpectNear(n.square().mean(), {1}, 1e-4);
}

}  // namespace
}  // namespace outboard
