#include "compiler/kernel/decompose_math.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "compiler/ir/build.h"
#include "compiler/rewrite/matcher.h"
#include "compiler/rewrite/pattern.h"
#include "compiler/rewrite/rewriter.h"

namespace outboard::codegen {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- notation: nodes with operators -------------------------------------------------------------

struct X {
  Graph* g;
  const UOp* node;

  X Of(const UOp* other) const { return {g, other}; }
  X Const(double value) const { return Of(ConstOf(*g, node->dtype, value)); }
  X To(DType dtype) const { return Of(Cast(*g, node, dtype)); }
  X Bits(DType dtype) const { return Of(Bitcast(*g, node, dtype)); }
};

X operator+(X a, X b) { return a.Of(Add(*a.g, a.node, b.node)); }
X operator-(X a) { return a.Of(Alu(*a.g, Op::kNeg, a.node)); }
X operator-(X a, X b) { return a + -b; }
X operator*(X a, X b) { return a.Of(Mul(*a.g, a.node, b.node)); }
X operator/(X a, X b) { return a.Of(Alu(*a.g, Op::kFDiv, a.node, b.node)); }
X operator<(X a, X b) { return a.Of(Alu(*a.g, Op::kCmpLt, a.node, b.node)); }
X operator==(X a, X b) { return a.Of(Alu(*a.g, Op::kCmpEq, a.node, b.node)); }
X operator&(X a, X b) { return a.Of(Alu(*a.g, Op::kAnd, a.node, b.node)); }
X operator^(X a, X b) { return a.Of(Alu(*a.g, Op::kXor, a.node, b.node)); }
X operator<<(X a, int n) { return a.Of(Alu(*a.g, Op::kShl, a.node, a.Const(n).node)); }
X operator>>(X a, int n) { return a.Of(Alu(*a.g, Op::kShr, a.node, a.Const(n).node)); }
X operator+(X a, double b) { return a + a.Const(b); }
X operator*(X a, double b) { return a * a.Const(b); }
X Trunc(X a) { return a.Of(Alu(*a.g, Op::kTrunc, a.node)); }
X If(X condition, X a, X b) { return a.Of(Where(*a.g, condition.node, a.node, b.node)); }
// a * b + c, rounded once.
X Fma(X a, X b, X c) { return a.Of(Alu(*a.g, Op::kMulAcc, a.node, b.node, c.node)); }
X Fma(X a, double b, X c) { return Fma(a, a.Const(b), c); }

// c0 + c1 x + c2 x^2 ...
X Polynomial(X x, std::initializer_list<double> coefficients) {
  const double* c = coefficients.end();
  X sum = x.Const(*--c);
  while (c != coefficients.begin()) sum = Fma(sum, x, x.Const(*--c));
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
X Clamp(X x, double low, double high) {
  x = If(x < x.Const(low), x.Const(low), x);
  return If(x.Const(high) < x, x.Const(high), x);
}

// p * 2^n; n are the low bits of `rounded`, -256 < n < 256. In two factors, so that only the last
// multiplication rounds where the result is subnormal, and overflows where it is not a number.
X TimesPower(X p, X rounded) {
  const X n = rounded.Bits(DType::kI32) << 23;  // in the place of an exponent
  const X half = (n >> 1) & n.Const(-1 << 23);
  const X one = n.Const(127 << 23);
  return p * (half + one).Bits(DType::kF32) * ((n - half) + one).Bits(DType::kF32);
}

// x = n + f with |f| <= 1/2; 2^f = sum of (f ln 2)^k / k!.
//
// What is 0 is 0 before it is multiplied by the power: a product that underflows takes a processor
// a hundred cycles, and half of a causal mask is exponentials of -infinity.
X Exp2(X x) {
  x = Clamp(x, -151, 129);  // beyond it is 0, or infinity
  const X rounded = x + kRounder;
  const X f = x - (rounded + -kRounder);
  const auto c = [](int k) { return std::pow(kLn2, k) / Factorial(k); };
  const X power = Polynomial(f, {1, c(1), c(2), c(3), c(4), c(5), c(6), c(7)});
  return TimesPower(If(x < x.Const(-150), x.Const(0), power), rounded);
}

// x = n ln 2 + f with |f| <= ln 2 / 2.
X Exp(X x) {
  x = Clamp(x, -105, 90);
  const X rounded = Fma(x, kLog2E, x.Const(kRounder));
  const X n = rounded + -kRounder;
  const X f = Fma(n, kLn2High - kLn2, Fma(n, -kLn2High, x));
  const auto c = [](int k) { return 1 / Factorial(k); };
  const X power = Polynomial(f, {1, c(1), c(2), c(3), c(4), c(5), c(6), c(7)});
  return TimesPower(If(x < x.Const(-104), x.Const(0), power), rounded);
}

// tanh x is 1 - 2 / (e^2x + 1), which loses digits near 0; there, x and the rest of a continued
// fraction, x / (1 + z / (3 + z / (5 + z / (7 + z / 9)))) with z = x^2. Either way one division.
X Tanh(X x) {
  const X bits = x.Bits(DType::kI32);
  const X sign = bits & bits.Const(kSignBit);
  const X size = (bits ^ sign).Bits(DType::kF32);
  const X z = size * size;
  const X near = size < size.Const(0.625);
  const X base = If(near, size, size.Const(1));
  const X over = If(near, (size * z) * Polynomial(z, {-315, -14}), size.Const(-2));
  const X under = If(near, Polynomial(z, {945, 420, 15}), Exp(size * 2) + 1);
  return ((base + over / under).Bits(DType::kI32) ^ sign).Bits(DType::kF32);
}

// ---- logarithms ---------------------------------------------------------------------------------

// x = (1 + f) 2^e with 1 + f in [sqrt(1/2), sqrt(2)), for 0 < x < infinity. And with s = f / (2 +
// f)
//   log(1 + f) = f - square / 2 + s (square / 2 + series(s^2)),  square = f^2,
//   series(z) = 2 z / 3 + 2 z^2 / 5 + 2 z^3 / 7 ...
// in which everything after f is small.
struct Logarithm {
  X e, f, half_square, rest;  // rest: the last product of the sum
};

Logarithm SplitLogarithm(X x) {
  const X tiny = x < x.Const(0x1p-126);
  const X normal = If(tiny, x * 0x1p23, x);
  // Without the bits of sqrt(1/2) the exponent carries at sqrt(2).
  const X bits = normal.Bits(DType::kI32);
  const X e = (bits - bits.Const(0x3f3504f3)) >> 23;
  const X f = (bits - (e << 23)).Bits(DType::kF32) + -1.0;
  const X exponent = e.To(DType::kF32) + If(tiny, x.Const(-23), x.Const(0));
  const X half_square = f * f * 0.5;
  const X s = f / (f + 2);
  const X z = s * s;
  const X series = z * Polynomial(z, {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9});
  return {exponent, f, half_square, s * (half_square + series)};
}

// `of_positive` where x is a positive number.
X AnyLogarithm(X x, X of_positive) {
  const X outside =
      If(x == x.Const(0), x.Const(-kInfinity), x.Const(std::numeric_limits<double>::quiet_NaN()));
  return If(x.Const(0) < x, If(x < x.Const(kInfinity), of_positive, x), outside);
}

X Log(X x) {
  const Logarithm log = SplitLogarithm(x);
  const X small = Fma(log.e, kLn2 - kLn2High, log.rest) - log.half_square;
  return AnyLogarithm(x, Fma(log.e, kLn2High, log.f) + small);
}

X Log2(X x) {
  const Logarithm log = SplitLogarithm(x);
  // log(1 + f) as the sum of two floats.
  const X high = log.f - log.half_square;
  const X low = ((log.f - high) - log.half_square) + log.rest;
  const X small = Fma(high, kLog2E - kLog2EHigh, low * kLog2E);
  return AnyLogarithm(x, Fma(high, kLog2EHigh, log.e) + small);
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
  X rest;  // in radians, f32
  X n;     // i32; its low two bits count
};

// x 2/pi in f64. A large x is a multiple of 2^28, 2^56 or 2^84, and that times 2/pi is wanted
// modulo 4 only, which leaves out the leading digits of the product. Digits are taken 29 at a time,
// since x has 24: two exact products, and one that rounds below 2^-56.
Angle Reduce(X size) {
  constexpr int kStep = 28, kPart = 29;
  const X x = size.To(DType::kF64);
  X scaled = x, high = x, middle = x, low = x;
  for (int k = 0; k < 4; ++k) {
    const X far = x.Const(std::ldexp(1.0, 24 + kStep * k)) < x;
    const auto choose = [&](X& value, double constant) {
      value = k == 0 ? x.Const(constant) : If(far, x.Const(constant), value);
    };
    const int first = kStep * k - 1;  // of weight 2
    choose(scaled, std::ldexp(1.0, -kStep * k));
    choose(high, std::ldexp(DigitsOfTwoOverPi(first, kPart), kStep * k));
    choose(middle, std::ldexp(DigitsOfTwoOverPi(first + kPart, kPart), kStep * k));
    choose(low, std::ldexp(DigitsOfTwoOverPi(first + 2 * kPart, 53), kStep * k));
  }
  scaled = x * scaled;
  const X turns = scaled * high;
  const X part = Fma(Trunc(turns * 0.25), -4, turns);
  const X second = scaled * middle;
  const X rounded = (part + second) + kRounder64;
  const X rest = ((part - (rounded + -kRounder64)) + second) + scaled * low;
  return {(rest * (std::numbers::pi / 2)).To(DType::kF32),
          rounded.Bits(DType::kI64).To(DType::kI32)};
}

// The sine of rest + (n + quarters) quarter turns, with the sign of `sign`.
X SineOf(const Angle& angle, int quarters, X sign) {
  const X r = angle.rest;
  const X z = r * r;
  const auto c = [](int k) { return (k % 4 < 2 ? 1 : -1) / Factorial(k); };
  const X sine = Fma(r * z, Polynomial(z, {c(3), c(5), c(7), c(9)}), r);
  const X cosine =
      Fma(z, Fma(z, Polynomial(z, {c(4), c(6), c(8), c(10)}), z.Const(c(2))), z.Const(1));
  const X n = angle.n + quarters;
  const X turned = If((n & n.Const(1)) == n.Const(1), cosine, sine);
  return (turned.Bits(DType::kI32) ^ ((n & n.Const(2)) << 30) ^ sign).Bits(DType::kF32);
}

X Sin(X x) {
  const X bits = x.Bits(DType::kI32);
  const X sign = bits & bits.Const(kSignBit);
  return SineOf(Reduce((bits ^ sign).Bits(DType::kF32)), 0, sign);
}

X Cos(X x) {
  const X bits = x.Bits(DType::kI32);
  const X size = (bits & bits.Const(~kSignBit)).Bits(DType::kF32);
  return SineOf(Reduce(size), 1, bits.Const(0));
}

// ---- the table ----------------------------------------------------------------------------------

template <X (*F)(X)>
const UOp* InF32(Graph& g, const Match& m) {
  if (m.root->dtype == DType::kF64) return nullptr;
  const UOp* const x = Cast(g, m[pattern::x], DType::kF32);
  return Cast(g, F({&g, x}).node, m.root->dtype);
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
// clang-format on

}  // namespace

const UOp* DecomposeTranscendentals(Graph& graph, const UOp* sink) {
  // Never destroyed, so that threads may use it until the process ends.
  static const Matcher& matcher = *new Matcher({kRules});
  return Rewrite(graph, sink, matcher);
}

}  // namespace outboard::codegen
