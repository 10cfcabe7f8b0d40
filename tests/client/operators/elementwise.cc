// Operators on one element at a time.
#include <cmath>
#include <numbers>

#include "tests/client/operators/each.h"

namespace outboard::operators {
namespace {

constexpr char kBitcast[] = "x.bitcast(dtype)";
constexpr char kPow[] = "x.pow(y), a number or a tensor";

}  // namespace

Group Elementwise() {
  const Operand around = {{2, 5}}, positive = {{2, 5}, 0.5, 4}, wide = {{2, 5}, -5, 5};
  const Operand corners = {{6}, 0, 0, {kNan, kInf, -kInf, 1, 0, -0.0}};
  const auto same = [](double x) { return x; };
  return {
      "Elementwise",
      {
          Each(
              "neg", "x.neg(), -x", Types::kNumbers, Yields::kSame, wide,
              [](auto& x) { return x.neg(); }, [](double x) { return -x; }, 0),
          Each(
              "operator-", "x.neg(), -x", Types::kNumbers, Yields::kSame, wide,
              [](auto& x) { return -x; }, [](double x) { return -x; }, 0),
          OfFloats(
              "exp", "x.exp()", around, [](auto& x) { return x.exp(); },
              [](double x) { return std::exp(x); }),
          OfFloats(
              "exp2", "x.exp2()", around, [](auto& x) { return x.exp2(); },
              [](double x) { return std::exp2(x); }),
          OfFloats(
              "log", "x.log()", positive, [](auto& x) { return x.log(); },
              [](double x) { return std::log(x); }),
          OfFloats(
              "log2", "x.log2()", positive, [](auto& x) { return x.log2(); },
              [](double x) { return std::log2(x); }),
          OfFloats(
              "sin", "x.sin()", around, [](auto& x) { return x.sin(); },
              [](double x) { return std::sin(x); }),
          OfFloats(
              "cos", "x.cos()", around, [](auto& x) { return x.cos(); },
              [](double x) { return std::cos(x); }),
          OfFloats(
              "tan", "x.tan()", {{2, 5}, -1, 1}, [](auto& x) { return x.tan(); },
              [](double x) { return std::tan(x); }, 8),
          OfFloats(
              "sqrt", "x.sqrt()", positive, [](auto& x) { return x.sqrt(); },
              [](double x) { return std::sqrt(x); }),
          OfFloats(
              "rsqrt", "x.rsqrt()", {{2, 5}, 1, 4}, [](auto& x) { return x.rsqrt(); },
              [](double x) { return 1 / std::sqrt(x); }),
          OfFloats(
              "reciprocal", "x.reciprocal()", {{2, 5}, 1, 4},
              [](auto& x) { return x.reciprocal(); }, [](double x) { return 1 / x; }),
          Each(
              "square", "x.square()", Types::kAll, Yields::kSame, around,
              [](auto& x) { return x.square(); }, [](double x) { return x * x; }),
          Each(
              "abs", "x.abs()", Types::kAll, Yields::kSame, wide, [](auto& x) { return x.abs(); },
              [](double x) { return std::abs(x); }, 0),
          Each(
              "sign", "x.sign()", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.sign(); }, [](double x) { return (x > 0) - (x < 0); }, 0),
          Each(
              "sign", "x.sign()", Types::kFloats, Yields::kSame, {{2}, 0, 0, {kNan, -1}},
              [](auto& x) { return x.sign(); }, [](double x) { return std::isnan(x) ? x : -1; }, 0,
              Gradient::kNone),
          Each(
              "trunc", "x.trunc()", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.trunc(); }, [](double x) { return std::trunc(x); }, 0),
          Each(
              "floor", "x.floor()", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.floor(); }, [](double x) { return std::floor(x); }, 0),
          Each(
              "ceil", "x.ceil()", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.ceil(); }, [](double x) { return std::ceil(x); }, 0),
          Each(
              "round", "x.round(), halves to even", Types::kAll, Yields::kSame,
              {{8}, 0, 0, {-1.5, -0.25, 0.5, 0.75, 1, 1.5, 2.5, 3.25}},
              [](auto& x) { return x.round(); }, [](double x) { return std::nearbyint(x); }, 0,
              Gradient::kNone),
          Each(
              "round", "x.round(), halves to even", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.round(); }, [](double x) { return std::nearbyint(x); }, 0),

          Each(
              "relu", "x.relu()", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.relu(); }, [](double x) { return std::max(x, 0.0); }, 0),
          OfFloats(
              "leaky_relu", "x.leaky_relu(slope)", wide,
              [](auto& x) { return x.leaky_relu(0.125); },
              [](double x) { return x < 0 ? 0.125 * x : x; }),
          OfFloats(
              "elu", "x.elu(alpha)", around, [](auto& x) { return x.elu(0.5); },
              [](double x) { return x < 0 ? 0.5 * std::expm1(x) : x; }),
          OfFloats(
              "sigmoid", "x.sigmoid()", around, [](auto& x) { return x.sigmoid(); }, Sigmoid),
          OfFloats(
              "tanh", "x.tanh()", around, [](auto& x) { return x.tanh(); },
              [](double x) { return std::tanh(x); }),
          OfFloats(
              "silu", "x.silu()", around, [](auto& x) { return x.silu(); },
              [](double x) { return x * Sigmoid(x); }),
          OfFloats(
              "gelu", "x.gelu()", around, [](auto& x) { return x.gelu(); },
              [](double x) {
                const double inner = x + 0.044715 * x * x * x;
                return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * inner));
              }),
          OfFloats(
              "softplus", "x.softplus()", wide, [](auto& x) { return x.softplus(); },
              [](double x) { return std::log1p(std::exp(x)); }),
          Each(
              "clip", "x.clip(low, high)", Types::kNumbers, Yields::kSame, wide,
              [](auto& x) { return x.clip(1, 3); },
              [](double x) { return std::clamp(x, 1.0, 3.0); }, 0),
          Each(
              "pow", kPow, Types::kNumbers, Yields::kSame, around, [](auto& x) { return x.pow(3); },
              [](double x) { return x * x * x; }),
          Each(
              "pow", kPow, Types::kBool, Yields::kI32, {{2, 5}, 0, 1},
              [](auto& x) { return x.pow(2); }, same, 0, Gradient::kNone),
          Each(
              "pow", kPow, Types::kNumbers, Yields::kSame, around, [](auto& x) { return x.pow(0); },
              [](double) { return 1; }),
          Each(
              "pow", kPow, Types::kFloats, Yields::kFloat, {{2, 5}, 1, 3},
              [](auto& x) { return x.pow(-2); }, [](double x) { return 1 / (x * x); }),
          OfFloats(
              "pow", kPow, {{2, 5}, 1, 3}, [](auto& x) { return x.pow(1.5); },
              [](double x) { return std::pow(x, 1.5); }),
          Each(
              "isnan", "x.isnan()", Types::kAll, Yields::kBool, wide,
              [](auto& x) { return x.isnan(); }, [](double) { return 0; }, 0, Gradient::kNone),
          Each(
              "isnan", "x.isnan()", Types::kFloats, Yields::kBool, corners,
              [](auto& x) { return x.isnan(); }, [](double x) { return std::isnan(x); }, 0,
              Gradient::kNone),
          Each(
              "isinf", "x.isinf()", Types::kAll, Yields::kBool, wide,
              [](auto& x) { return x.isinf(); }, [](double) { return 0; }, 0, Gradient::kNone),
          Each(
              "isinf", "x.isinf()", Types::kFloats, Yields::kBool, corners,
              [](auto& x) { return x.isinf(); }, [](double x) { return std::isinf(x); }, 0,
              Gradient::kNone),
          Each(
              "isfinite", "x.isfinite()", Types::kAll, Yields::kBool, wide,
              [](auto& x) { return x.isfinite(); }, [](double) { return 1; }, 0, Gradient::kNone),
          Each(
              "isfinite", "x.isfinite()", Types::kFloats, Yields::kBool, corners,
              [](auto& x) { return x.isfinite(); }, [](double x) { return std::isfinite(x); }, 0,
              Gradient::kNone),
          Each(
              "logical_not", "x.logical_not()", Types::kAll, Yields::kBool, {{2, 5}, 0, 1},
              [](auto& x) { return x.logical_not(); }, [](double x) { return x == 0; }, 0,
              Gradient::kNone),
          Each(
              "cast", "x.cast(dtype)", Types::kAll, Yields::kF32, wide,
              [](auto& x) { return x.cast(DType::kF32); }, same, 1),
          Each(
              "cast", "x.cast(dtype)", Types::kAll, Yields::kI32, wide,
              [](auto& x) { return x.cast(DType::kI32); }, [](double x) { return std::trunc(x); },
              0, Gradient::kNone),
          Each(
              "cast", "x.cast(dtype)", Types::kAll, Yields::kBool, {{2, 5}, 0, 1},
              [](auto& x) { return x.cast(DType::kBool); }, [](double x) { return x != 0; }, 0,
              Gradient::kNone),
          Each(
              "bitcast", kBitcast, Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.bitcast(x.dtype()); }, same, 0),
          // There and back.
          Each(
              "bitcast", kBitcast, Types::kFloats, Yields::kSame, {{2, 8}},
              [](auto& x) { return x.bitcast(DType::kU8).bitcast(x.dtype()); }, same, 0,
              Gradient::kNone),
          Each(
              "bitcast", kBitcast, Types::kIntegers, Yields::kSame, {{2, 8}},
              [](auto& x) { return x.bitcast(DType::kF64).bitcast(x.dtype()); }, same, 0,
              Gradient::kNone),
          Row{"bitcast",
              kBitcast,
              "any; to another width [..., n] -> [..., m]",
              Types::kAll,
              Yields::kU32,
              Gradient::kNone,
              {{{2, 2}, 0, 255, {}, DType::kU16}},
              [](const Tensors& x) { return x[0].bitcast(DType::kU32); },
              [](const Arrays& x) {
                return Build({2, 1},
                             [&](auto& i) { return x[0]({i[0], 0}) + 65536 * x[0]({i[0], 1}); });
              },
              0},
          Each(
              "detach", "x.detach()", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.detach(); }, same, 0, Gradient::kNone),
          Each(
              "contiguous", "x.contiguous()", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.contiguous(); }, same, 0),
          Each(
              "shard", "x.shard()", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.shard(); }, same, 0),
          Each(
              "shard_like", "x.shard_like(y)", Types::kAll, Yields::kSame, wide,
              [](auto& x) { return x.shard_like(x.shard()); }, same, 0),
          Each(
              "shard_", "x.shard_()", Types::kAll, Yields::kSame, wide,
              [](auto& x) {
                Tensor y = x.contiguous();
                return y.shard_();
              },
              same, 0, Gradient::kNone),
      },
  };
}

}  // namespace outboard::operators
