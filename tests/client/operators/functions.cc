// Functions and activations of one float, and of bits.
#include <algorithm>
#include <cmath>

#include "client/ops/elementwise/activations.h"
#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/elementwise/transcendental.h"
#include "compiler/reference/alu.h"
#include "tests/client/operators/each.h"

namespace outboard::operators {
namespace {

// Outside of the domain, and where a formula of exponentials would overflow.
Row AtTheEnds(const std::string& name, const std::string& form, std::vector<double> values,
              std::function<Tensor(const Tensor&)> make, Function f) {
  const auto count = static_cast<int64_t>(values.size());
  return Each(name, form, Types::kFloats, Yields::kFloat, {{count}, 0, 0, std::move(values)},
              std::move(make), std::move(f), 4, Gradient::kNone);
}

double Softplus(double x) { return std::log1p(std::exp(x)); }
double Relu6(double x) { return std::clamp(x, 0.0, 6.0); }

}  // namespace

Group Functions() {
  const Operand around = {{2, 5}}, positive = {{2, 5}, 0.5, 4}, wide = {{2, 5}, -5, 5},
                within = {{2, 5}, -0.9, 0.9}, above = {{2, 5}, 1.25, 8}, truth = {{2, 5}, 0, 1};
  const auto none = Gradient::kNone;
  return {
      "Functions and activations",
      {
          OfFloats(
              "log10", "log10(x)", positive, [](auto& x) { return outboard::log10(x); },
              [](double x) { return std::log10(x); }),
          OfFloats(
              "asin", "asin(x)", within, [](auto& x) { return outboard::asin(x); },
              [](double x) { return std::asin(x); }),
          AtTheEnds(
              "asin", "asin(x)", {-1, 1, -0.0, 2, kNan}, [](auto& x) { return outboard::asin(x); },
              [](double x) { return std::asin(x); }),
          OfFloats(
              "acos", "acos(x)", within, [](auto& x) { return outboard::acos(x); },
              [](double x) { return std::acos(x); }),
          AtTheEnds(
              "acos", "acos(x)", {-1, 1, 0, 2, -2, kNan}, [](auto& x) { return outboard::acos(x); },
              [](double x) { return std::acos(x); }),
          OfFloats(
              "atan", "atan(x)", wide, [](auto& x) { return outboard::atan(x); },
              [](double x) { return std::atan(x); }),
          AtTheEnds(
              "atan", "atan(x)", {-kInf, kInf, 0, 100, -100, kNan},
              [](auto& x) { return outboard::atan(x); }, [](double x) { return std::atan(x); }),
          OfFloats(
              "sinh", "sinh(x)", around, [](auto& x) { return outboard::sinh(x); },
              [](double x) { return std::sinh(x); }),
          OfFloats(
              "cosh", "cosh(x)", around, [](auto& x) { return outboard::cosh(x); },
              [](double x) { return std::cosh(x); }),
          OfFloats(
              "asinh", "asinh(x)", wide, [](auto& x) { return outboard::asinh(x); },
              [](double x) { return std::asinh(x); }),
          AtTheEnds(
              "asinh", "asinh(x)", {-kInf, kInf, 0, kNan},
              [](auto& x) { return outboard::asinh(x); }, [](double x) { return std::asinh(x); }),
          OfFloats(
              "acosh", "acosh(x)", above, [](auto& x) { return outboard::acosh(x); },
              [](double x) { return std::acosh(x); }),
          AtTheEnds(
              "acosh", "acosh(x)", {1, 0.5, -3, -200, kNan},
              [](auto& x) { return outboard::acosh(x); }, [](double x) { return std::acosh(x); }),
          OfFloats(
              "atanh", "atanh(x)", within, [](auto& x) { return outboard::atanh(x); },
              [](double x) { return x == 0 ? 0 : std::atanh(x); }),
          OfFloats(
              "erf", "erf(x)", wide, [](auto& x) { return outboard::erf(x); },
              [](double x) { return std::erf(x); }),
          AtTheEnds(
              "erf", "erf(x)", {-kInf, kInf, 0, 20, kNan}, [](auto& x) { return outboard::erf(x); },
              [](double x) { return std::erf(x); }),

          Each(
              "relu6", "relu6(x)", Types::kNumbers, Yields::kSame, {{2, 5}, -9, 9},
              [](auto& x) { return relu6(x); }, Relu6, 0),
          OfFloats(
              "hardsigmoid", "hardsigmoid(x, alpha, beta)", wide,
              [](auto& x) { return hardsigmoid(x); }, [](double x) { return Relu6(x + 3) / 6; }),
          OfFloats(
              "hardswish", "hardswish(x)", wide, [](auto& x) { return hardswish(x); },
              [](double x) { return x * Relu6(x + 3) / 6; }),
          OfFloats(
              "celu", "celu(x, alpha)", around, [](auto& x) { return celu(x, 0.5); },
              [](double x) { return x < 0 ? 0.5 * std::expm1(x / 0.5) : x; }),
          OfFloats(
              "selu", "selu(x, alpha, gamma)", around, [](auto& x) { return selu(x, 0.5, 2); },
              [](double x) { return x < 0 ? std::expm1(x) : 2 * x; }),
          OfFloats(
              "softplus", "softplus(x, beta)", wide, [](auto& x) { return softplus(x, 0.5); },
              [](double x) { return 2 * Softplus(x / 2); }),
          OfFloats(
              "mish", "mish(x)", around, [](auto& x) { return mish(x); },
              [](double x) { return x * std::tanh(Softplus(x)); }),
          OfFloats(
              "logsigmoid", "logsigmoid(x)", wide, [](auto& x) { return logsigmoid(x); },
              [](double x) { return -Softplus(-x); }),
          OfFloats(
              "softsign", "softsign(x)", wide, [](auto& x) { return softsign(x); },
              [](double x) { return x / (1 + std::abs(x)); }),
          OfFloats(
              "quick_gelu", "quick_gelu(x)", around, [](auto& x) { return quick_gelu(x); },
              [](double x) { return x * Sigmoid(1.702 * x); }),
          OfFloats(
              "gelu_erf", "gelu_erf(x)", around, [](auto& x) { return gelu_erf(x); },
              [](double x) { return x / 2 * (1 + std::erf(x * std::sqrt(0.5))); }),
          Row{"softmin",
              "softmin(x, axes)",
              "same",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{2, 2}}},
              [](const Tensors& x) { return softmin(x[0], {0, 1}); },
              [](const Arrays& x) {
                double sum = 0;
                for (const double value : x[0].values) sum += std::exp(-value);
                return Build({2, 2}, [&](const Dims& i) { return std::exp(-x[0](i)) / sum; });
              },
              4},

          Each(
              "bitwise_not", "bitwise_not(x)", Types::kIntegers, Yields::kSame, wide,
              [](auto& x) { return bitwise_not(x); }, [](double x) { return -1 - x; }, 0, none),
          Each(
              "bitwise_not", "bitwise_not(x)", Types::kBool, Yields::kSame, truth,
              [](auto& x) { return bitwise_not(x); }, [](double x) { return x == 0; }, 0, none),
          Each(
              "isinf", "isinf(x, detect_positive, detect_negative)", Types::kAll, Yields::kBool,
              wide, [](auto& x) { return outboard::isinf(x, true, false); },
              [](double) { return 0; }, 0, none),
          Each(
              "isinf", "isinf(x, detect_positive, detect_negative)", Types::kFloats, Yields::kBool,
              {{4}, 0, 0, {kNan, kInf, -kInf, 1}},
              [](auto& x) { return outboard::isinf(x, false, true); },
              [](double x) { return std::isinf(x) && x < 0; }, 0, none),
          Each(
              "clamp", "clamp(x, low, high), either may be missing", Types::kNumbers, Yields::kSame,
              wide, [](auto& x) { return clamp(x, Arg(2), {}); },
              [](double x) { return std::max(x, 2.0); }, 0),
          Each(
              "clamp", "clamp(x, low, high), either may be missing", Types::kNumbers, Yields::kSame,
              wide, [](auto& x) { return clamp(x, {}, Arg(2)); },
              [](double x) { return std::min(x, 2.0); }, 0),
          Row{"threefry",
              "threefry(counter, key)",
              "broadcast from the right",
              Types::kAll,
              Yields::kU32,
              none,
              {{{4}, 0, 9, {}, DType::kU64}, {{1}, 0, 9, {}, DType::kU64}},
              [](const Tensors& x) { return threefry(x[0], x[1]).cast(DType::kU32); },
              [](const Arrays& x) {
                return Build({4}, [&](const Dims& i) {
                  return static_cast<double>(static_cast<uint32_t>(reference::Threefry(
                      static_cast<uint64_t>(x[0](i)), static_cast<uint64_t>(x[1].values[0]))));
                });
              },
              0},
      },
  };
}

}  // namespace outboard::operators
