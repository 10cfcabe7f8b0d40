// Gradients of convolutions in 16-bit floats with respect to their inputs, against the sums of all
// products in f64: how often they are rounded.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "client/ops/window/window.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

struct Case {
  const char* name;
  int64_t kernel = 3, stride = 1, padding = 1, dilation = 1, groups = 1;
  int64_t side = 9;
  // What the windows over a place give is rounded for each, before it is added.
  bool rounds_windows = false;
};

constexpr int64_t kBatch = 2, kChannels = 8, kFilters = 6;

// Drawn, and rounded to the type.
Tensor Drawn(const Dims& dims, DType dtype, std::mt19937& random) {
  std::vector<double> values;
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::uniform_real_distribution<>(-1, 1)(random));
  return Tensor::from<double>(values).reshape(dims).cast(dtype);
}

// At a place of the input: the sum of all products, of their sizes, and of the sizes of what each
// window over the place gives.
struct Sums {
  double products = 0, sizes = 0, windows = 0;
  int64_t count = 0;
};

Sums SumsAt(const Case& c, const std::vector<double>& dy, const std::vector<double>& w, int64_t out,
            int64_t batch, int64_t channel, int64_t row, int64_t column) {
  Sums sums;
  const int64_t in = kChannels / c.groups, group = channel / in, of_group = kFilters / c.groups;
  for (int64_t kr = 0; kr < c.kernel; ++kr)
    for (int64_t kc = 0; kc < c.kernel; ++kc) {
      const int64_t r = row + c.padding - kr * c.dilation, s = column + c.padding - kc * c.dilation;
      if (r < 0 || s < 0 || r % c.stride != 0 || s % c.stride != 0 || r / c.stride >= out ||
          s / c.stride >= out)
        continue;
      double window = 0;
      for (int64_t f = group * of_group; f < (group + 1) * of_group; ++f) {
        const double product =
            dy[static_cast<size_t>(((batch * kFilters + f) * out + r / c.stride) * out +
                                   s / c.stride)] *
            w[static_cast<size_t>(((f * in + channel % in) * c.kernel + kr) * c.kernel + kc)];
        window += product;
        sums.sizes += std::abs(product);
        ++sums.count;
      }
      sums.products += window;
      sums.windows += std::abs(window);
    }
  return sums;
}

class ConvolutionGradientTest : public ClientTest, public testing::WithParamInterface<DType> {};

TEST_P(ConvolutionGradientTest, OfTheInputIsRoundedOnce) {
  const DType dtype = GetParam();
  const double unit = dtype == DType::kBF16 ? std::ldexp(1, -8) : std::ldexp(1, -11);
  const double least = dtype == DType::kBF16 ? 0 : std::ldexp(1, -25);
  const Case cases[] = {
      {.name = "3 x 3"},
      {.name = "no padding", .padding = 0},
      {.name = "5 x 5", .kernel = 5, .padding = 2},
      {.name = "dilation", .padding = 2, .dilation = 2},
      {.name = "groups", .groups = 2},
      {.name = "1 x 1", .kernel = 1, .padding = 0},
      {.name = "stride 2", .stride = 2, .side = 10},
      {.name = "stride 2, no padding", .stride = 2, .padding = 0, .side = 8},
      {.name = "stride 2, wide borders", .stride = 2, .padding = 2, .side = 10},
      {.name = "stride 2, groups", .stride = 2, .groups = 2, .side = 10},
      {.name = "7 x 7, stride 2", .kernel = 7, .stride = 2, .padding = 3, .side = 14},
      {.name = "7 x 7, stride 3", .kernel = 7, .stride = 3, .padding = 3, .side = 15},
      {.name = "6 x 6, stride 4", .kernel = 6, .stride = 4, .padding = 2, .side = 12},
      {.name = "stride 2, odd", .stride = 2, .rounds_windows = true},
      {.name = "4 x 4, stride 3", .kernel = 4, .stride = 3, .side = 11, .rounds_windows = true},
      {.name = "1 x 1, stride 2", .kernel = 1, .stride = 2, .padding = 0},
      {.name = "2 x 2, stride 2", .kernel = 2, .stride = 2, .padding = 0},
      {.name = "2 x 2, stride 3", .kernel = 2, .stride = 3, .padding = 0},
      {.name = "5 x 5, stride 4", .kernel = 5, .stride = 4, .rounds_windows = true},
      {.name = "stride 2, dilation",
       .stride = 2,
       .padding = 2,
       .dilation = 2,
       .rounds_windows = true},
      {.name = "few windows", .kernel = 6, .padding = 0, .rounds_windows = true},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(3);
    const int64_t out = (c.side + 2 * c.padding - (c.kernel - 1) * c.dilation - 1) / c.stride + 1;
    const Tensor x = Drawn({kBatch, kChannels, c.side, c.side}, dtype, random),
                 w = Drawn({kFilters, kChannels / c.groups, c.kernel, c.kernel}, dtype, random),
                 dy = Drawn({kBatch, kFilters, out, out}, dtype, random);
    const Tensor y = x.conv2d(
        w, {},
        {.groups = c.groups, .stride = c.stride, .dilation = c.dilation, .padding = c.padding});
    const Tensor gradient = y.gradient({x}, dy)[0];
    EXPECT_EQ(gradient.dtype(), dtype);
    ASSERT_EQ(gradient.shape(), x.shape());
    const std::vector<double> values = gradient.to_vector<double>(), of_dy = dy.to_vector<double>(),
                              of_w = w.to_vector<double>();
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      const Sums sums = SumsAt(c, of_dy, of_w, out, i / (kChannels * c.side * c.side),
                               i / (c.side * c.side) % kChannels, i / c.side % c.side, i % c.side);
      const double added = static_cast<double>(sums.count) * std::ldexp(sums.sizes, -24);
      // Two axes of windows, each of which is added and rounded.
      const double windows = c.rounds_windows ? 2 * unit * sums.windows : 0;
      ASSERT_NEAR(values[static_cast<size_t>(i)], sums.products,
                  unit * std::abs(sums.products) + added + windows + least)
          << "element " << i;
    }
  }
}

// Multiples of 1 / 4 up to 1: products and their sums have no rounding but that of the result.
Tensor DrawnQuarters(const Dims& dims, DType dtype, std::mt19937& random) {
  std::vector<double> values;
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>(static_cast<int>(random() % 9) - 4) / 4);
  return Tensor::from<double>(values).reshape(dims).cast(dtype);
}

// One axis and three, and two that differ: as the gradient in f64.
TEST_P(ConvolutionGradientTest, OfStridedWindowsAlongOtherAxesIsRoundedOnce) {
  struct Shaped {
    const char* name;
    Dims x, w;
    ConvolutionOptions options;
  };
  const Shaped cases[] = {
      {"one axis", {2, 8, 12}, {6, 8, 3}, {.stride = 2, .padding = 1}},
      {"5 x 3", {2, 8, 10, 12}, {6, 8, 5, 3}, {.stride = 2, .padding = {2, 1}}},
      {"strides 1 and 2", {2, 8, 9, 12}, {6, 8, 3, 3}, {.stride = {1, 2}, .padding = 1}},
      {"borders on one side",
       {2, 8, 11, 11},
       {6, 8, 3, 3},
       {.stride = 2, .padding = {{0, 1}, {1, 0}}}},
      {"three axes", {1, 8, 8, 8, 8}, {4, 8, 3, 3, 3}, {.stride = 2, .padding = 1}},
  };
  const DType dtype = GetParam();
  const double unit = dtype == DType::kBF16 ? std::ldexp(1, -8) : std::ldexp(1, -11);
  for (const Shaped& c : cases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(3);
    const Tensor x = DrawnQuarters(c.x, dtype, random), w = DrawnQuarters(c.w, dtype, random);
    const Tensor y = convolution(x, w, {}, c.options);
    const Tensor dy = DrawnQuarters(y.shape(), dtype, random);
    const std::vector<double> got = y.gradient({x}, dy)[0].to_vector<double>();
    const Tensor exact_x = x.cast(DType::kF64);
    const Tensor exact_y = convolution(exact_x, w.cast(DType::kF64), {}, c.options);
    const std::vector<double> want =
        exact_y.gradient({exact_x}, dy.cast(DType::kF64))[0].to_vector<double>();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], unit * std::abs(want[i])) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, ConvolutionGradientTest, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace outboard
