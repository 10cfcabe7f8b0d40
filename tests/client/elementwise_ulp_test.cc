// How far the elementwise functions of a Tensor are from the exact ones in f32, in units in the
// last place: the table of docs/semantics.md, for the reference's arithmetic and, on_the_compiler,
// for that of kernels, on a GPU those of the PTX machine. Every OUTBOARD_ULP_STEP-th float between
// the ends of a row is tried, 9973 unless told.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "client/ops/elementwise/activations.h"
#include "client/ops/elementwise/transcendental.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

constexpr double kMost = std::numeric_limits<float>::max();

struct Row {
  const char* name;
  std::function<Tensor(const Tensor&)> make;
  std::function<double(double)> exact;
  double ulps;
  double low = -kMost, high = kMost;
};

double Sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double Gelu(double x) {
  return x * Sigmoid(2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
}

const Row kRows[] = {
    {"exp", [](auto& x) { return x.exp(); }, [](double x) { return std::exp(x); }, 2},
    {"exp2", [](auto& x) { return x.exp2(); }, [](double x) { return std::exp2(x); }, 2},
    {"log", [](auto& x) { return x.log(); }, [](double x) { return std::log(x); }, 2},
    {"log2", [](auto& x) { return x.log2(); }, [](double x) { return std::log2(x); }, 2},
    {"sin", [](auto& x) { return x.sin(); }, [](double x) { return std::sin(x); }, 2},
    {"cos", [](auto& x) { return x.cos(); }, [](double x) { return std::cos(x); }, 2},
    {"tanh", [](auto& x) { return x.tanh(); }, [](double x) { return std::tanh(x); }, 2},
    {"sqrt", [](auto& x) { return x.sqrt(); }, [](double x) { return std::sqrt(x); }, 0.5},
    {"rsqrt", [](auto& x) { return x.rsqrt(); }, [](double x) { return 1 / std::sqrt(x); }, 1.5},
    {"tan", [](auto& x) { return x.tan(); }, [](double x) { return std::tan(x); }, 4},
    {"sigmoid", [](auto& x) { return x.sigmoid(); }, Sigmoid, 3},
    {"silu", [](auto& x) { return x.silu(); }, [](double x) { return x * Sigmoid(x); }, 4, -87},
    {"softplus", [](auto& x) { return x.softplus(); }, Softplus, 4},
    {"gelu", [](auto& x) { return x.gelu(); }, Gelu, 40, -5},
    {"log10", [](auto& x) { return log10(x); }, [](double x) { return std::log10(x); }, 4},
    {"asin", [](auto& x) { return asin(x); }, [](double x) { return std::asin(x); }, 6},
    {"acos", [](auto& x) { return acos(x); }, [](double x) { return std::acos(x); }, 6},
    {"atan", [](auto& x) { return atan(x); }, [](double x) { return std::atan(x); }, 4},
    {"sinh", [](auto& x) { return sinh(x); }, [](double x) { return std::sinh(x); }, 6},
    {"cosh", [](auto& x) { return cosh(x); }, [](double x) { return std::cosh(x); }, 6},
    {"asinh", [](auto& x) { return asinh(x); }, [](double x) { return std::asinh(x); }, 6},
    {"acosh", [](auto& x) { return acosh(x); }, [](double x) { return std::acosh(x); }, 6},
    {"atanh", [](auto& x) { return atanh(x); }, [](double x) { return std::atanh(x); }, 6},
    {"erf", [](auto& x) { return erf(x); }, [](double x) { return std::erf(x); }, 4},
    {"pow 1.5", [](auto& x) { return x.pow(1.5); }, [](double x) { return std::pow(x, 1.5); }, 6,
     0.5, 2},
    {"pow 1.5", [](auto& x) { return x.pow(1.5); }, [](double x) { return std::pow(x, 1.5); }, 200,
     0},
};

double Ulps(double got, double exact) {
  if (std::isnan(got) || std::isnan(exact))
    return std::isnan(got) && std::isnan(exact) ? 0 : std::numeric_limits<double>::infinity();
  // An infinity stands for the number after the largest one.
  const double e = std::clamp(exact, -0x1p128, 0x1p128), g = std::clamp(got, -0x1p128, 0x1p128);
  if (g == e) return 0;
  return std::abs(g - e) / std::ldexp(1.0, std::max(e == 0 ? -126 : std::ilogb(e), -126) - 23);
}

uint64_t Step() {
  const char* const text = std::getenv("OUTBOARD_ULP_STEP");
  return text == nullptr ? 9973 : std::max<uint64_t>(1, std::strtoull(text, nullptr, 10));
}

using ElementwiseUlp = ClientTest;

TEST_F(ElementwiseUlp, AsDocumented) {
  for (const Row& row : kRows) {
    std::vector<float> in;
    for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += Step())
      if (const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
          x >= row.low && x <= row.high)
        in.push_back(x);
    const std::vector<float> out = row.make(Tensor::from<float>(in)).to_vector<float>();
    double worst = 0;
    float where = 0;
    for (size_t k = 0; k < in.size(); ++k) {
      const double ulps = Ulps(out[k], row.exact(in[k]));
      if (ulps > worst) worst = ulps, where = in[k];
    }
    std::printf("%-8s %10.3f ulp at %g\n", row.name, worst, where);
    EXPECT_LE(worst, row.ulps) << row.name << " of " << where;
  }
}

// Where an exponential overflows, a gradient is 0 or 1, not infinity times zero; and at 0 it is the
// slope there.
TEST_F(ElementwiseUlp, GradientsFarOutAndAtZero) {
  struct Slope {
    const char* name;
    std::function<Tensor(const Tensor&)> make;
    std::vector<double> wanted;  // at -200, -30, 0, 30, 200
  };
  const Slope kSlopes[] = {
      {"sigmoid", [](auto& x) { return x.sigmoid(); }, {0, 0, 0.25, 0, 0}},
      {"tanh", [](auto& x) { return x.tanh(); }, {0, 0, 1, 0, 0}},
      {"silu", [](auto& x) { return x.silu(); }, {0, 0, 0.5, 1, 1}},
      {"gelu", [](auto& x) { return x.gelu(); }, {0, 0, 0.5, 1, 1}},
      {"softplus", [](auto& x) { return x.softplus(); }, {0, 0, 0.5, 1, 1}},
      {"elu", [](auto& x) { return x.elu(1); }, {0, 0, 1, 1, 1}},
      {"celu", [](auto& x) { return celu(x, 2); }, {0, 0, 1, 1, 1}},
      {"mish", [](auto& x) { return mish(x); }, {0, 0, 0.6, 1, 1}},
      {"logsigmoid", [](auto& x) { return logsigmoid(x); }, {1, 1, 0.5, 0, 0}},
      {"gelu_erf", [](auto& x) { return gelu_erf(x); }, {0, 0, 0.5, 1, 1}},
      {"erf", [](auto& x) { return erf(x); }, {0, 0, 2 / std::sqrt(std::numbers::pi), 0, 0}},
      {"atan", [](auto& x) { return atan(x); }, {1 / 40001., 1 / 901., 1, 1 / 901., 1 / 40001.}},
  };
  for (const Slope& slope : kSlopes) {
    Tensor x = Tensor::from<float>({-200, -30, 0, 30, 200});
    x.requires_grad_();
    slope.make(x).sum().backward();
    const std::vector<float> got = x.grad().to_vector<float>();
    for (size_t k = 0; k < got.size(); ++k)
      EXPECT_NEAR(got[k], slope.wanted[k], 1e-6) << slope.name << " " << k;
  }
}

}  // namespace
}  // namespace outboard
