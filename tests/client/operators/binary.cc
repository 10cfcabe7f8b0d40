// Operators on two operands, which promote and broadcast.
#include <algorithm>
#include <cmath>

#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

using Function = std::function<double(double, double)>;
constexpr char kShapes[] = "broadcast from the right";

Array Zip(const Array& a, const Array& b, const Function& f) {
  const Dims dims = Common(a.dims, b.dims);
  const Array x = Stretch(a, dims), y = Stretch(b, dims);
  return Build(dims, [&](const Dims& i) { return f(x(i), y(i)); });
}

Row Pair(const std::string& name, const std::string& form, Types types, Yields yields,
         std::function<Tensor(const Tensor&, const Tensor&)> make, Function f,
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
            std::function<Tensor(const Tensor&, const Tensor&)> make, Function f) {
  return Pair(name, form, Types::kAll, Yields::kBool, std::move(make), std::move(f),
              Gradient::kNone, {{2, 4}, 0, 0, {0, 1, 1, 0, 1, 0, 1, 1}}, {{4}, 0, 0, {0, 0, 1, 1}},
              0);
}

// `make` changes its first operand.
Row Assigning(const std::string& name, const std::string& form, Types types, Yields yields,
              std::function<void(Tensor&, const Tensor&)> make, Function f,
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
  const Operand whole = {{2, 3}, -60, 60}, divisor = {{3}, 1, 7}, shift = {{3}, 0, 3},
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
              "pow", "x.pow(y), a number or a tensor", Types::kAll, Yields::kFloat,
              [](auto& a, auto& b) { return a.pow(b); },
              [](double a, double b) { return std::pow(a, b); }, both, {{2, 3}, 1, 3}, {{3}, 0, 2},
              8),
          Pair(
              "pow", "x.pow(y), a number or a tensor", Types::kFloats, Yields::kFloat,
              [](auto& a, auto& b) { return a.pow(b); },
              [](double a, double b) { return std::pow(a, b); }, none,
              {{7}, 0, 0, {-2, -2, -2, 0, 0, 0, -0.5}}, {{7}, 0, 0, {2, 3, 0.5, 0, 1, -1, -2}}, 2),
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
