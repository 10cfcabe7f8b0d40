// Operators on two operands, which promote and broadcast.
#include <algorithm>
#include <cmath>

#include "client/ops/elementwise/arithmetic.h"
#include "tests/client/operators/each.h"

namespace outboard::operators {
namespace {

using BinaryFunction = std::function<double(double, double)>;
constexpr char kShapes[] = "broadcast from the right";
constexpr char kPow[] = "x.pow(y), a number or a tensor";

Array Zip(const Array& a, const Array& b, const BinaryFunction& f) {
  const Dims dims = Common(a.dims, b.dims);
  const Array x = Stretch(a, dims), y = Stretch(b, dims);
  return Build(dims, [&](const Dims& i) { return f(x(i), y(i)); });
}

Row Pair(const std::string& name, const std::string& form, Types types, Yields yields,
         std::function<Tensor(const Tensor&, const Tensor&)> make, BinaryFunction f,
         Gradient gradient = Gradient::kYes, Operand a = {{2, 3}}, Operand b = {{2, 1}, -3, 3},
         double units = 1) {
  return {name,
          form,
          kShapes,
          types,
          yields,
          gradient,
          {std::move(a), std::move(b)},
          [make](const Tensors& x) { return make(x[0], x[1]); },
          [f](const Arrays& x) { return Zip(x[0], x[1], f); },
          units};
}

Row Compare(const std::string& name, const std::string& form,
            std::function<Tensor(const Tensor&, const Tensor&)> make, BinaryFunction f) {
  return Pair(name, form, Types::kAll, Yields::kBool, std::move(make), std::move(f),
              Gradient::kNone, {{2, 4}, 0, 0, {0, 1, 1, 0, 1, 0, 1, 1}}, {{4}, 0, 0, {0, 0, 1, 1}},
              0);
}

// `make` changes its first operand.
Row Assigning(const std::string& name, const std::string& form, Types types, Yields yields,
              std::function<void(Tensor&, const Tensor&)> make, BinaryFunction f,
              Gradient gradient = Gradient::kYes) {
  return Pair(
      name, form, types, yields,
      [make](const Tensor& a, const Tensor& b) {
        Tensor y = a;
        make(y, b);
        return y;
      },
      std::move(f), gradient);
}

double Sum(double a, double b) { return a + b; }
double Product(double a, double b) { return a * b; }

}  // namespace

Group Binary() {
  const auto bits = [](auto f) {
    return [f](double a, double b) {
      return static_cast<double>(f(static_cast<int64_t>(a), static_cast<int64_t>(b)));
    };
  };
  const Operand whole = {{2, 3}, -60, 60}, divisor = {{3}, 1, 7},
                divisors = {{2, 3}, 0, 0, {-7, 3, 5, 2, -4, 1}}, shift = {{3}, 0, 3},
                few = {{2, 3}, 0, 7}, away = {{3}, 1, 3};
  const auto both = Gradient::kYes;
  const auto none = Gradient::kNone;
  return {
      "Two operands",
      {
          Pair(
              "operator+", "a + b; of bool: or", Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { return a + b; }, Sum),
          Pair(
              "operator+", "a + b; of bool: or", Types::kBool, Yields::kSame,
              [](auto& a, auto& b) { return a + b; },
              [](double a, double b) { return std::max(a, b); }, none),
          Pair(
              "operator-", "a - b", Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { return a - b; }, [](double a, double b) { return a - b; }),
          Pair(
              "operator*", "a * b; of bool: and", Types::kAll, Yields::kSame,
              [](auto& a, auto& b) { return a * b; }, Product),
          Pair(
              "operator/", "a / b", Types::kAll, Yields::kFloat,
              [](auto& a, auto& b) { return a / b; }, [](double a, double b) { return a / b; },
              both, {{2, 3}}, {{3}, 1, 3}, 2),
          Pair(
              "operator%", "a % b, the sign of a", Types::kIntegers, Yields::kSame,
              [](auto& a, auto& b) { return a % b; },
              [](double a, double b) { return std::fmod(a, b); }, none, whole, divisor),
          Pair(
              "idiv", "a.idiv(b), towards zero", Types::kIntegers, Yields::kSame,
              [](auto& a, auto& b) { return a.idiv(b); },
              [](double a, double b) { return std::trunc(a / b); }, none, whole, divisor),
          Pair(
              "pow", kPow, Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { return a.pow(b); },
              [](double a, double b) { return std::pow(a, b); }, both, {{2, 3}, 1, 3}, {{3}, 0, 2},
              8),
          Pair(
              "pow", kPow, Types::kBool, Yields::kI32, [](auto& a, auto& b) { return pow(a, b); },
              [](double a, double b) { return std::pow(a, b); }, none, {{4}, 0, 0, {0, 0, 1, 1}},
              {{4}, 0, 0, {0, 1, 0, 1}}, 0),
          // Towards zero where it is no whole number.
          Pair(
              "pow", kPow, Types::kIntegers, Yields::kSame,
              [](auto& a, auto& b) { return a.pow(b); },
              [](double a, double b) { return std::trunc(std::pow(a, b)); }, none,
              {{6}, 0, 0, {1, 2, -1, -1, -3, -2}}, {{6}, 0, 0, {0, 5, 3, 4, 3, 7}}, 0),
          Pair(
              "pow", kPow, Types::kFloats, Yields::kFloat,
              [](auto& a, auto& b) { return a.pow(b); },
              [](double a, double b) { return std::pow(a, b); }, none,
              {{7}, 0, 0, {-2, -2, -2, 0, 0, 0, -0.5}}, {{7}, 0, 0, {2, 3, 0.5, 0, 1, -1, -2}}, 2),
          Pair(
              "floor_div", "floor_div(a, b), Python's a // b", Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { return floor_div(a, b); },
              [](double a, double b) { return b == 0 ? 0 : std::floor(a / b); }, none, whole,
              divisors),
          Pair(
              "floor_mod", "floor_mod(a, b), Python's a % b", Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { return floor_mod(a, b); },
              [](double a, double b) { return b == 0 ? a : a - b * std::floor(a / b); }, none,
              whole, divisors, 64),
          Pair(
              "floor_mod", "floor_mod(a, b), Python's a % b", Types::kFloats, Yields::kSame,
              [](auto& a, auto& b) { return floor_mod(a, b); },
              [](double a, double b) { return a - b * std::floor(a / b); }, both, {{2, 3}},
              {{3}, 1, 3}, 4),
          Pair(
              "trunc_div", "trunc_div(a, b), towards zero", Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { return trunc_div(a, b); },
              [](double a, double b) { return b == 0 ? 0 : std::trunc(a / b); }, none, whole,
              divisors),
          Pair(
              "fmod", "fmod(a, b), the sign of a", Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { return outboard::fmod(a, b); },
              [](double a, double b) { return b == 0 ? a : std::fmod(a, b); }, none, whole,
              divisors, 64),
          Pair(
              "copysign", "copysign(a, b)", Types::kAll, Yields::kSame,
              [](auto& a, auto& b) { return outboard::copysign(a, b); },
              [](double a, double b) { return std::copysign(a, b); }, both, {{2, 3}},
              {{3}, 0, 0, {-1, 1, 2}}, 0),
          Pair(
              "copysign", "copysign(a, b)", Types::kFloats, Yields::kSame,
              [](auto& a, auto& b) { return outboard::copysign(a, b); },
              [](double a, double b) { return std::copysign(a, b); }, none,
              {{4}, 0, 0, {1, 1, -1, 0}}, {{4}, 0, 0, {0, -0.0, -0.0, -1}}, 0),
          Pair(
              "logaddexp", "logaddexp(a, b)", Types::kAll, Yields::kFloat,
              [](auto& a, auto& b) { return logaddexp(a, b); },
              [](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }, both,
              {{2, 3}}, {{2, 1}, -3, 3}, 4),
          Pair(
              "logaddexp", "logaddexp(a, b)", Types::kFloats, Yields::kFloat,
              [](auto& a, auto& b) { return logaddexp(a, b); },
              [](double a, double b) { return std::max(a, b); }, none,
              {{3}, 0, 0, {-kInf, kInf, -kInf}}, {{3}, 0, 0, {-kInf, 1, 2}}, 2),
          Pair(
              "isclose", "isclose(a, b, rtol, atol, equal_nan)", Types::kAll, Yields::kBool,
              [](auto& a, auto& b) { return isclose(a, b, 0.25, 0.5); },
              [](double a, double b) { return std::abs(a - b) <= 0.5 + 0.25 * std::abs(b); }, none,
              {{2, 3}, 0, 8}, {{3}, 0, 8}, 0),
          Pair(
              "isclose", "isclose(a, b, rtol, atol, equal_nan)", Types::kFloats, Yields::kBool,
              [](auto& a, auto& b) { return isclose(a, b, 0.25, 0.5, true); },
              [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }, none,
              {{5}, 0, 0, {kNan, kNan, 1, kInf, -kInf}}, {{5}, 0, 0, {kNan, 1, kNan, 1, -kInf}}, 0),
          Row{"allclose",
              "allclose(a, b, rtol, atol, equal_nan)",
              "broadcast from the right -> []",
              Types::kAll,
              Yields::kBool,
              none,
              {{{2, 3}, 0, 8}, {{3}, 0, 8}},
              [](const Tensors& x) { return allclose(x[0], x[1], 0.25, 0.5); },
              [](const Arrays& x) {
                const Array close = Zip(x[0], x[1], [](double a, double b) {
                  return std::abs(a - b) <= 0.5 + 0.25 * std::abs(b);
                });
                return Array{{}, {*std::min_element(close.values.begin(), close.values.end())}};
              },
              0},
          Row{"lerp",
              "lerp(start, end, weight)",
              kShapes,
              Types::kAll,
              Yields::kFloat,
              both,
              {{{2, 3}}, {{3}}},
              [](const Tensors& x) { return lerp(x[0], x[1], 0.25); },
              [](const Arrays& x) {
                return Zip(x[0], x[1], [](double a, double b) { return a + (b - a) * 0.25; });
              },
              4},
          Pair(
              "maximum", "a.maximum(b)", Types::kAll, Yields::kSame,
              [](auto& a, auto& b) { return a.maximum(b); },
              [](double a, double b) { return std::max(a, b); }),
          Pair(
              "minimum", "a.minimum(b)", Types::kAll, Yields::kSame,
              [](auto& a, auto& b) { return a.minimum(b); },
              [](double a, double b) { return std::min(a, b); }),
          Compare(
              "operator<", "a < b", [](auto& a, auto& b) { return a < b; }, std::less<>()),
          Compare(
              "operator>", "a > b", [](auto& a, auto& b) { return a > b; }, std::greater<>()),
          Compare(
              "operator<=", "a <= b", [](auto& a, auto& b) { return a <= b; }, std::less_equal<>()),
          Compare(
              "operator>=", "a >= b", [](auto& a, auto& b) { return a >= b; },
              std::greater_equal<>()),
          Compare(
              "operator==", "a == b", [](auto& a, auto& b) { return a == b; }, std::equal_to<>()),
          Compare(
              "operator!=", "a != b", [](auto& a, auto& b) { return a != b; },
              std::not_equal_to<>()),
          Pair(
              "operator&", "a & b", Types::kIntegersAndBool, Yields::kSame,
              [](auto& a, auto& b) { return a & b; }, bits(std::bit_and<>()), none, whole),
          Pair(
              "operator|", "a | b", Types::kIntegersAndBool, Yields::kSame,
              [](auto& a, auto& b) { return a | b; }, bits(std::bit_or<>()), none, whole),
          Pair(
              "operator^", "a ^ b", Types::kIntegersAndBool, Yields::kSame,
              [](auto& a, auto& b) { return a ^ b; }, bits(std::bit_xor<>()), none, whole),
          Pair(
              "operator<<", "a << b", Types::kIntegers, Yields::kSame,
              [](auto& a, auto& b) { return a << b; },
              bits([](int64_t a, int64_t b) { return a << b; }), none, few, shift),
          Pair(
              "operator>>", "a >> b", Types::kIntegers, Yields::kSame,
              [](auto& a, auto& b) { return a >> b; },
              bits([](int64_t a, int64_t b) { return a >> b; }), none, whole, shift),
          Assigning(
              "operator+=", "a += b", Types::kBool, Yields::kSame, [](auto& a, auto& b) { a += b; },
              [](double a, double b) { return std::max(a, b); }, none),
          Assigning(
              "operator+=", "a += b", Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { a += b; }, Sum),
          Assigning(
              "operator-=", "a -= b", Types::kNumbers, Yields::kSame,
              [](auto& a, auto& b) { a -= b; }, [](double a, double b) { return a - b; }),
          Assigning(
              "operator*=", "a *= b", Types::kAll, Yields::kSame, [](auto& a, auto& b) { a *= b; },
              Product),
          Pair(
              "operator/=", "a /= b", Types::kAll, Yields::kFloat,
              [](auto& a, auto& b) {
                Tensor y = a;
                y /= b;
                return y;
              },
              [](double a, double b) { return a / b; }, both, {{2, 3}}, away, 2),
          Row{"where",
              "condition.where(a, b)",
              kShapes,
              Types::kAll,
              Yields::kSame,
              both,
              {{{3}, 0, 0, {1, 0, 1}, DType::kBool}, {{2, 3}}, {{2, 1}}},
              [](const Tensors& x) { return x[0].where(x[1], x[2]); },
              [](const Arrays& x) {
                const Array c = Stretch(x[0], {2, 3}), b = Stretch(x[2], {2, 3});
                return Build({2, 3}, [&](const Dims& i) { return c(i) != 0 ? x[1](i) : b(i); });
              },
              0},
      },
  };
}

}  // namespace outboard::operators
