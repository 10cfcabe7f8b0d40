#include "compiler/kernel/decompose_math.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"
#include "compiler/rewrite/matcher.h"
#include "compiler/rewrite/pattern.h"
#include "compiler/rewrite/rewriter.h"

namespace outboard::codegen {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- notation -----------------------------------------------------------------------------------

// c0 + c1 x + c2 x^2 ...
Expr Polynomial(Expr x, std::initializer_list<double> coefficients) {
  const double* c = coefficients.end();
  Expr sum = x.like(*--c);
  while (c != coefficients.begin()) sum = fma(sum, x, *--c);
  return sum;
}

constexpr double Factorial(int n) { return n < 2 ? 1 : n * Factorial(n - 1); }

// Adding it rounds a small number to an integer, which the low bits of the sum then hold.
constexpr double kRounder = 0x1.8p23, kRounder64 = 0x1.8p52;

constexpr int32_t kSignBit = std::numeric_limits<int32_t>::min();
constexpr double kLn2 = std::numbers::ln2, kLog2E = std::numbers::log2e;
constexpr double kLn2High = static_cast<float>(kLn2), kLog2EHigh = static_cast<float>(kLog2E);

// ---- exponentials -------------------------------------------------------------------------------

// NaN stays.
Expr Clamp(Expr x, double low, double high) {
  x = (x < low).where(low, x);
  return (x > high).where(high, x);
}

// p * 2^n; n are the low bits of `rounded`, -255 < n < 256. In two factors, so that only the last
// multiplication rounds where the result is subnormal, and overflows where it is not a number.
// Where n is -254 both are 0.
Expr TimesPower(Expr p, Expr rounded) {
  const Expr bits = rounded.bitcast(DType::kI32);
  const Expr n = bits << 23;  // in the place of an exponent
  const Expr half = (bits << 22) & (-1 << 23);
  const Expr one = n.like(127 << 23);
  return p * (half + one).bitcast(DType::kF32) * ((n - half) + one).bitcast(DType::kF32);
}

// x = n + f with |f| <= 1/2; 2^f = sum of (f ln 2)^k / k!.
//
// The least number has powers that are 0: a product that underflows takes a processor a hundred
// cycles, and half of a causal mask is exponentials of -infinity.
constexpr double kLeastPower = -254;

Expr Exp2(Expr x) {
  x = Clamp(x, kLeastPower, 129);  // beyond it is 0, or infinity
  const Expr rounded = x + kRounder;
  const Expr f = x - (rounded - kRounder);
  const auto c = [](int k) { return std::pow(kLn2, k) / Factorial(k); };
  const Expr power = Polynomial(f, {1, c(1), c(2), c(3), c(4), c(5), c(6), c(7)});
  return TimesPower(power, rounded);
}

// x = n ln 2 + f with |f| <= ln 2 / 2.
Expr Exp(Expr x) {
  x = Clamp(x, kLeastPower * kLn2, 90);
  const Expr rounded = fma(x, kLog2E, kRounder);
  const Expr n = rounded - kRounder;
  const Expr f = fma(n, kLn2High - kLn2, fma(n, -kLn2High, x));
  const auto c = [](int k) { return 1 / Factorial(k); };
  const Expr power = Polynomial(f, {1, c(1), c(2), c(3), c(4), c(5), c(6), c(7)});
  return TimesPower(power, rounded);
}

// tanh x is 1 - 2 / (e^2x + 1), which loses digits near 0; there, x and the rest of a continued
// fraction, x / (1 + z / (3 + z / (5 + z / (7 + z / 9)))) with z = x^2. Either way one division.
//
// F is the exponential, of 1.25 and more: an error of it grows in 1 - 2 / (e + 1) by 0.82 at most.
template <Expr (*F)(Expr)>
Expr TanhBy(Expr x) {
  const Expr bits = x.bitcast(DType::kI32);
  const Expr sign = bits & kSignBit;
  const Expr size = (bits ^ sign).bitcast(DType::kF32);
  const Expr z = size * size;
  const Expr near = size < 0.625;
  const Expr base = near.where(size, 1);
  const Expr over = near.where((size * z) * Polynomial(z, {-315, -14}), -2);
  const Expr under = near.where(Polynomial(z, {945, 420, 15}), F(size * 2) + 1);
  return ((base + over / under).bitcast(DType::kI32) ^ sign).bitcast(DType::kF32);
}
Expr Tanh(Expr x) { return TanhBy<Exp>(x); }

// ---- logarithms ---------------------------------------------------------------------------------

// x = (1 + f) 2^e with 1 + f in [sqrt(1/2), sqrt(2)), for 0 < x < infinity. And with s = f / (2 +
// f)
//   log(1 + f) = f - square / 2 + s (square / 2 + series(s^2)),  square = f^2,
//   series(z) = 2 z / 3 + 2 z^2 / 5 + 2 z^3 / 7 ...
// in which everything after f is small.
struct Logarithm {
  Expr e, f, half_square, rest;  // rest: the last product of the sum
};

Logarithm SplitLogarithm(Expr x) {
  const Expr tiny = x < 0x1p-126;
  const Expr normal = tiny.where(x * 0x1p23, x);
  // Without the bits of sqrt(1/2) the exponent carries at sqrt(2).
  const Expr bits = normal.bitcast(DType::kI32);
  const Expr e = (bits - bits.like(0x3f3504f3)) >> 23;
  const Expr f = (bits - (e << 23)).bitcast(DType::kF32) - 1;
  const Expr exponent = e.cast(DType::kF32) + tiny.where(x.like(-23), 0);
  const Expr half_square = f * f * 0.5;
  const Expr s = f / (f + 2);
  const Expr z = s * s;
  const Expr series = z * Polynomial(z, {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9});
  return {exponent, f, half_square, s * (half_square + series)};
}

// `of_positive` where x is a positive number.
Expr AnyLogarithm(Expr x, Expr of_positive) {
  const Expr outside = (x == 0).where(-kInfinity, x.like(std::numeric_limits<double>::quiet_NaN()));
  return (x > 0).where((x < kInfinity).where(of_positive, x), outside);
}

Expr Log(Expr x) {
  const Logarithm log = SplitLogarithm(x);
  const Expr small = fma(log.e, kLn2 - kLn2High, log.rest) - log.half_square;
  return AnyLogarithm(x, fma(log.e, kLn2High, log.f) + small);
}

Expr Log2(Expr x) {
  const Logarithm log = SplitLogarithm(x);
  // log(1 + f) as the sum of two floats.
  const Expr high = log.f - log.half_square;
  const Expr low = ((log.f - high) - log.half_square) + log.rest;
  const Expr small = fma(high, kLog2E - kLog2EHigh, low * kLog2E);
  return AnyLogarithm(x, fma(high, kLog2EHigh, log.e) + small);
}

// ---- sine and cosine ----------------------------------------------------------------------------

// `count` digits of 2 / pi from the one of weight 2^-first on.
double DigitsOfTwoOverPi(int first, int count) {
  static constexpr uint32_t kDigits[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                         0xdb629599, 0x3c439041, 0xfe5163ab};
  double value = 0;
  for (int i = first; i < first + count; ++i)
    if (i > 0 && (kDigits[(i - 1) / 32] >> (31 - (i - 1) % 32) & 1)) value += std::ldexp(1.0, -i);
  return value;
}

// |x| in quarter turns: a multiple of four, n, and a rest of at most half of one.
struct Angle {
  Expr rest;  // in radians, f32
  Expr n;     // i32; its low two bits count
};

// x 2/pi in f64. A large x is a multiple of 2^28, 2^56 or 2^84, and that times 2/pi is wanted
// modulo 4 only, which leaves out the leading digits of the product. Digits are taken 29 at a time,
// since x has 24: two exact products, and one that rounds below 2^-56.
Angle Reduce(Expr size) {
  constexpr int kStep = 28, kPart = 29;
  const Expr x = size.cast(DType::kF64);
  Expr scaled = x, high = x, middle = x, low = x;
  for (int k = 0; k < 4; ++k) {
    const Expr far = x > std::ldexp(1.0, 24 + kStep * k);
    const auto choose = [&](Expr& value, double constant) {
      value = k == 0 ? x.like(constant) : far.where(constant, value);
    };
    const int first = kStep * k - 1;  // of weight 2
    choose(scaled, std::ldexp(1.0, -kStep * k));
    choose(high, std::ldexp(DigitsOfTwoOverPi(first, kPart), kStep * k));
    choose(middle, std::ldexp(DigitsOfTwoOverPi(first + kPart, kPart), kStep * k));
    choose(low, std::ldexp(DigitsOfTwoOverPi(first + 2 * kPart, 53), kStep * k));
  }
  scaled = x * scaled;
  const Expr turns = scaled * high;
  const Expr part = fma((turns * 0.25).trunc(), -4, turns);
  const Expr second = scaled * middle;
  const Expr rounded = (part + second) + kRounder64;
  const Expr rest = ((part - (rounded - kRounder64)) + second) + scaled * low;
  return {(rest * (std::numbers::pi / 2)).cast(DType::kF32),
          rounded.bitcast(DType::kI64).cast(DType::kI32)};
}

// The sine of rest + (n + quarters) quarter turns, with the sign of `sign`.
Expr SineOf(const Angle& angle, int quarters, Expr sign) {
  const Expr r = angle.rest;
  const Expr z = r * r;
  const auto c = [](int k) { return (k % 4 < 2 ? 1 : -1) / Factorial(k); };
  const Expr sine = fma(r * z, Polynomial(z, {c(3), c(5), c(7), c(9)}), r);
  const Expr cosine = fma(z, fma(z, Polynomial(z, {c(4), c(6), c(8), c(10)}), c(2)), 1);
  const Expr n = angle.n + quarters;
  const Expr turned = ((n & 1) == 1).where(cosine, sine);
  return (turned.bitcast(DType::kI32) ^ ((n & 2) << 30) ^ sign).bitcast(DType::kF32);
}

Expr Sin(Expr x) {
  const Expr bits = x.bitcast(DType::kI32);
  const Expr sign = bits & kSignBit;
  return SineOf(Reduce((bits ^ sign).bitcast(DType::kF32)), 0, sign);
}

Expr Cos(Expr x) {
  const Expr bits = x.bitcast(DType::kI32);
  const Expr size = (bits & ~kSignBit).bitcast(DType::kF32);
  return SineOf(Reduce(size), 1, bits.like(0));
}

// ---- the table ----------------------------------------------------------------------------------

template <Expr (*F)(Expr)>
const UOp* InF32(Graph& g, const Match& m) {
  if (m.root->dtype == DType::kF64 || !m.root->arg.empty()) return nullptr;
  const UOp* const x = Cast(g, m[pattern::x], DType::kF32);
  return Cast(g, F({g, x}).node(), m.root->dtype);
}

using pattern::unary;
using pattern::x;

// clang-format off
constexpr Rule kRules[] = {
    // name   matches              becomes
    {"exp",   unary(Op::kExp, x),  InF32<Exp>},
    {"exp2",  unary(Op::kExp2, x), InF32<Exp2>},
    {"log",   unary(Op::kLog, x),  InF32<Log>},
    {"log2",  unary(Op::kLog2, x), InF32<Log2>},
    {"sin",   unary(Op::kSin, x),  InF32<Sin>},
    {"cos",   unary(Op::kCos, x),  InF32<Cos>},
    {"tanh",  unary(Op::kTanh, x), InF32<Tanh>},
};

// By the unit of an NVIDIA GPU. What is not normal in f32 is 0 in f16.
class UnitMaker : public NodeMaker {
 public:
  UnitMaker(Graph& graph, int64_t how) : graph_(graph), how_(how) {}

  const UOp* Make(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg) override {
    return graph_.MakeChecked(op, dtype, src, op == Op::kExp2 ? absl::MakeSpan(&how_, 1) : arg);
  }

 private:
  Graph& graph_;
  int64_t how_;  // EXP2's argument
};

Expr Exp2ByUnit(Expr x) { return x.exp2(); }
Expr ExpByUnit(Expr x) { return (x * kLog2E).exp2(); }

template <Expr (*F)(Expr)>
const UOp* ByUnit(Graph& g, const Match& m) {
  const DType dtype = m.root->dtype;
  if (!IsFloatOf16(dtype)) return nullptr;
  constexpr int64_t kZero = 1, kSubnormal = 2;
  UnitMaker maker(g, dtype == DType::kF16 ? kZero : kSubnormal);
  const Expr x(maker, Cast(g, m[pattern::x], DType::kF32));
  return Cast(g, F(x).node(), dtype);
}

constexpr Rule kUnitRules[] = {
    // name          matches              becomes
    {"exp-by-unit",  unary(Op::kExp, x),  ByUnit<ExpByUnit>},
    {"exp2-by-unit", unary(Op::kExp2, x), ByUnit<Exp2ByUnit>},
    {"tanh-by-unit", unary(Op::kTanh, x), ByUnit<TanhBy<ExpByUnit>>},
};
// clang-format on

}  // namespace

const UOp* DecomposeByUnit(Graph& graph, const UOp* sink) {
  static const Matcher& matcher = *new Matcher({kUnitRules});  // as below
  const std::vector<const UOp*> nodes = PostOrder(sink);
  const auto is_small = [](const UOp* node) {
    return (node->op == Op::kExp || node->op == Op::kExp2 || node->op == Op::kTanh) &&
           IsFloatOf16(node->dtype);
  };
  if (std::none_of(nodes.begin(), nodes.end(), is_small)) return sink;
  return Rewrite(graph, CopiedTo(graph, nodes), matcher);
}

const UOp* CopiedTo(Graph& graph, const std::vector<const UOp*>& nodes) {
  absl::flat_hash_map<const UOp*, const UOp*> own;
  for (const UOp* node : nodes) {
    std::vector<const UOp*> src;
    for (const UOp* s : node->src) src.push_back(own.at(s));
    own[node] = graph.MakeChecked(node->op, node->dtype, src, node->arg);
  }
  return own.at(nodes.back());
}

const UOp* DecomposeTranscendentals(Graph& graph, const UOp* sink) {
  // Never destroyed, so that threads may use it until the process ends.
  static const Matcher& matcher = *new Matcher({kRules});
  return Rewrite(graph, sink, matcher);
}

}  // namespace outboard::codegen
