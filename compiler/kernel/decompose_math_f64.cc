#include "compiler/kernel/decompose_math_f64.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"
#include "compiler/kernel/decompose_math.h"
#include "compiler/rewrite/matcher.h"
#include "compiler/rewrite/pattern.h"
#include "compiler/rewrite/rewriter.h"

namespace outboard::codegen {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Adding it rounds a small number to an integer, which the low bits of the sum then hold.
constexpr double kRounder = 0x1.8p52;
// The high parts are the nearest doubles; the low ones what these leave out.
constexpr double kLn2 = std::numbers::ln2, kLn2Low = 0x1.abc9e3b39803fp-56;
constexpr double kLog2E = std::numbers::log2e, kLog2ELow = 0x1.777d0ffda0d24p-56;
constexpr double kHalfPi = std::numbers::pi / 2, kHalfPiLow = 0x1.1a62633145c07p-54;
constexpr double kHalfPiLast = -0x1.f1976b7ed8fbcp-110;  // the third of its parts
constexpr int64_t kSignBit = std::numeric_limits<int64_t>::min();
constexpr int kFraction = 52;  // bits of one
constexpr int64_t kExponentOfOne = int64_t{1023} << kFraction;

using Coefficients = std::vector<double>;

// c0 + c1 x + c2 x^2 ...
Expr Polynomial(Expr x, const Coefficients& c) {
  Expr sum = x.like(c.back());
  for (size_t k = c.size() - 1; k-- > 0;) sum = fma(sum, x, x.like(c[k]));
  return sum;
}

constexpr double Factorial(int n) { return n < 2 ? 1 : n * Factorial(n - 1); }

Expr Bits(Expr x) { return x.bitcast(DType::kI64); }
Expr Number(Expr bits) { return bits.bitcast(DType::kF64); }

// ---- exponentials

// NaN stays.
Expr Clamp(Expr x, double low, double high) {
  x = (x < low).where(low, x);
  return (x > high).where(high, x);
}

// p * 2^n; n are the low bits of `rounded`, -2048 < n < 2048. In two factors, so that only the last
// multiplication rounds where the result is subnormal.
Expr TimesPower(Expr p, Expr rounded) {
  const Expr n = Bits(rounded) << kFraction;
  const Expr half = (n >> 1) & (int64_t{-1} << kFraction);
  const Expr one = n.like(kExponentOfOne);
  return p * Number(half + one) * Number((n - half) + one);
}

// The series of e^f, in f log(base), for |f log(base)| <= ln 2 / 2: the next term is below 2^-57.
Coefficients PowerSeries(double log_base) {
  constexpr int kTerms = 14;
  Coefficients c;
  for (int k = 0; k < kTerms; ++k) c.push_back(std::pow(log_base, k) / Factorial(k));
  return c;
}

Expr Exp2(Expr x) {
  x = Clamp(x, -1080, 1030);  // beyond it is 0, or infinity
  const Expr rounded = x + kRounder;
  const Expr f = x - (rounded - kRounder);
  return TimesPower(Polynomial(f, PowerSeries(kLn2)), rounded);
}

Expr Exp(Expr x) {
  x = Clamp(x, -750, 712);
  const Expr rounded = fma(x, x.like(kLog2E), x.like(kRounder));
  const Expr n = rounded - kRounder;
  const Expr f = fma(n, n.like(-kLn2Low), fma(n, n.like(-kLn2), x));
  return TimesPower(Polynomial(f, PowerSeries(1)), rounded);
}

// x / (1 + z / (3 + z / (5 + ...))) with z = x^2, as x - x z over / under.
struct TanhFraction {
  Coefficients over, under;
};
TanhFraction MakeTanhFraction() {
  constexpr int kDepth = 9;  // for |x| < 0.625 the next one changes less than 2^-57
  // under_k / over_k is the part from the denominator 2 k + 1 on.
  Coefficients under = {2 * kDepth + 1}, over = {1};
  for (int k = kDepth - 1; k >= 0; --k) {
    Coefficients next(std::max(under.size(), over.size() + 1), 0.0);
    for (size_t i = 0; i < under.size(); ++i) next[i] += (2 * k + 1) * under[i];
    for (size_t i = 0; i < over.size(); ++i) next[i + 1] += over[i];
    if (k == 0) return {over, next};
    over = std::move(under);
    under = std::move(next);
  }
  return {};
}

Expr Tanh(Expr x) {
  const TanhFraction fraction = MakeTanhFraction();
  const Expr sign = Bits(x) & kSignBit;
  const Expr size = Number(Bits(x) ^ sign);
  const Expr z = size * size;
  const Expr near = size < 0.625;
  const Expr base = near.where(size, 1);
  const Expr over = near.where(-(size * z) * Polynomial(z, fraction.over), -2);
  const Expr under = near.where(Polynomial(z, fraction.under), Exp(size * 2) + 1);
  return Number(Bits(base + over / under) ^ sign);
}

// ---- logarithms: as decompose_math.cc

struct Logarithm {
  Expr e, f, half_square, rest;
};

Logarithm SplitLogarithm(Expr x) {
  constexpr int64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
  const Expr tiny = x < std::numeric_limits<double>::min();
  const Expr bits = Bits(tiny.where(x * 0x1p54, x));
  const Expr e = (bits - bits.like(kRootOfHalf)) >> kFraction;
  const Expr f = Number(bits - (e << kFraction)) - 1;
  const Expr exponent = e.cast(DType::kF64) + tiny.where(x.like(-54), 0);
  const Expr half_square = f * f * 0.5;
  const Expr s = f / (f + 2);
  const Expr z = s * s;  // below 0.03: the first term left out is below 2^-60
  Coefficients c;
  for (int k = 1; k <= 10; ++k) c.push_back(2.0 / (2 * k + 1));
  return {exponent, f, half_square, s * (half_square + z * Polynomial(z, c))};
}

// `of_positive` where x is a positive number.
Expr AnyLogarithm(Expr x, Expr of_positive) {
  const Expr outside = (x == 0).where(-kInfinity, x.like(kNaN));
  return (x > 0).where((x < kInfinity).where(of_positive, x), outside);
}

Expr Log(Expr x) {
  const Logarithm log = SplitLogarithm(x);
  const Expr small = fma(log.e, x.like(kLn2Low), log.rest) - log.half_square;
  return AnyLogarithm(x, fma(log.e, x.like(kLn2), log.f) + small);
}

Expr Log2(Expr x) {
  const Logarithm log = SplitLogarithm(x);
  const Expr high = log.f - log.half_square;  // log(1 + f) as the sum of two
  const Expr low = ((log.f - high) - log.half_square) + log.rest;
  const Expr small = fma(high, x.like(kLog2ELow), low * kLog2E);
  return AnyLogarithm(x, fma(high, x.like(kLog2E), log.e) + small);
}

// ---- sine and cosine

// 2 / pi: the bits behind its point.
constexpr uint32_t kTwoOverPi[] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
    0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
    0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d,
};
constexpr int kZeroWords = 2;  // before the point: the window of a small number begins there
// 192 bits: two of the quarter turns, 61 that may cancel, a double, and some more.
constexpr int kProductWords = 6;
constexpr int kWindowWords = kProductWords + 1;
constexpr int kPlaces = 33;  // words at which a window may begin

int64_t DigitWord(int k) {
  k -= kZeroWords;
  return k < 0 ? 0 : kTwoOverPi[static_cast<size_t>(k)];
}
static_assert(kPlaces - 1 + kWindowWords - kZeroWords <= static_cast<int>(std::size(kTwoOverPi)));

// Words of 32 bits, in i64s.
constexpr int64_t kWord = 0xffffffff;

// The words of the digits from word `place` on, 0 <= place < kPlaces: halves of what is left are
// chosen by one bit after another.
std::vector<Expr> Window(Expr place) {
  std::vector<Expr> words;
  for (int k = 0; k < kPlaces - 1 + kWindowWords; ++k) words.push_back(place.like(DigitWord(k)));
  for (int step = 32; step > 0; step /= 2) {
    const Expr far = (place & step) == step;
    // With 32 the place is 32 exactly.
    const int wanted = step == 32 ? static_cast<int>(words.size()) : step - 1 + kWindowWords;
    std::vector<Expr> next;
    for (int k = 0; k < wanted; ++k) {
      const auto beyond = static_cast<size_t>(k + step);
      next.push_back(beyond < words.size() ? far.where(words[beyond], words[static_cast<size_t>(k)])
                                           : words[static_cast<size_t>(k)]);
    }
    words = std::move(next);
  }
  return words;
}

struct Angle {
  Expr rest;   // in radians, at most a quarter of pi
  Expr error;  // what the rest lacks
  Expr n;      // i64; its low two bits count quarter turns
};

// Up to this |x|, pi / 2 as the sum of three doubles is close enough.
constexpr double kNearMax = 0x1p30;

// n is the nearest integer to |x| / (pi / 2), and |x| - n pi / 2 the sum of two numbers (Cody and
// Waite, with a fused multiplication). For |x| <= kNearMax:
//  - n <= 2^30, and the quotient's error is below 2^-22, so |rest| <= pi / 4 + 2^-21 < 1.
//  - |x| >= 1/2 where n > 0; so |x|, and n times the first part, are multiples of 2^-53. Their
//    difference is a number below 1: a double holds it, and `first` is exact.
//  - `second` with `second_low` is n times the second part exactly, and `rest` with `rounded` is
//    `first` - `second` exactly (Knuth's sum of two).
//  - What is left out: n times what the three parts lack, below 2^30 2^-164; and roundings of
//    `error`, whose terms are below 2^-53 |rest| and 2^-77: at most 2^-106 |rest| + 2^-128. No
//    double is within 2^-61 of a multiple of pi / 2 (the nearest is 0x1.6ac5b262ca1ffp849), so
//    both are below 2^-66 |rest|.
Angle ReduceNear(Expr size) {
  const Expr rounded_n = fma(size, size.like(1 / kHalfPi), size.like(kRounder));
  const Expr n = rounded_n - kRounder;
  const Expr first = fma(n, n.like(-kHalfPi), size);
  const Expr second = n * kHalfPiLow;
  const Expr second_low = fma(n, n.like(kHalfPiLow), -second);
  const Expr rest = first - second;
  const Expr taken = first - rest;  // Knuth: what was subtracted, and what of `first` it left
  const Expr rounded = (first - (rest + taken)) + (taken - second);
  return {rest, fma(n, n.like(-kHalfPiLast), rounded - second_low), Bits(rounded_n)};
}

// |x| = m 2^e, with m an integer of 53 bits. Digits of 2 / pi of weights above 2^(2 - e) give
// multiples of four quarter turns; the product of m and the 192 bits behind is, modulo 2^192, the
// number of quarter turns modulo 4 times 2^190 (Payne and Hanek).
Angle ReduceFar(Expr size) {
  const Expr bits = Bits(size);
  const Expr m = (bits & ((int64_t{1} << kFraction) - 1)) | (int64_t{1} << kFraction);
  const Expr e = (bits >> kFraction) - (1023 + kFraction);
  // The first digit is that of weight 2^-(e - 1); of those before the point there are 64.
  const Expr first = (e - 1) + (32 * kZeroWords - 1);
  const Expr at = (first < 0).where(0, first);  // small numbers are not reduced
  const Expr shift = at & 31;
  const std::vector<Expr> words = Window(at >> 5);
  const Expr low = m & kWord, high = m >> 32;
  Expr carry = m.like(0);
  std::vector<Expr> product(kProductWords, carry);  // from the least word on
  Expr before = m.like(0);
  for (int k = 0; k < kProductWords; ++k) {
    const size_t j = static_cast<size_t>(kProductWords - 1 - k);
    const Expr pair = ((words[j] << 32) | words[j + 1]).bitcast(DType::kU64);
    const Expr word =
        (pair >> (m.like(32) - shift).bitcast(DType::kU64)).bitcast(DType::kI64) & kWord;
    const Expr a = (low * word).bitcast(DType::kU64), b = high * before;
    const Expr a_low = a.bitcast(DType::kI64) & kWord;
    const Expr a_high = (a >> 32).bitcast(DType::kI64);
    const Expr sum = (a_low + (b & kWord)) + carry;
    product[static_cast<size_t>(k)] = sum & kWord;
    carry = (a_high + (b >> 32)) + (sum >> 32);
    before = word;
  }
  // Two bits of quarters, then a fraction, taken as a number in [-1/2, 1/2).
  const Expr top = (product[5] << 32) | product[4];
  const Expr next = (product[3] << 32) | product[2];
  const Expr fraction = (top << 2) | (product[3] >> 30);
  const Expr quarters = ((product[5] >> 30) + (product[5] >> 29 & 1)) & 3;
  const Expr below = (next << 2).bitcast(DType::kU64).cast(DType::kF64);
  // As the sum of two numbers: the first holds as many digits as it can.
  constexpr int64_t kBeyondDouble = 0x7ff;
  const Expr leading = (fraction & ~kBeyondDouble).cast(DType::kF64);
  const Expr trailing =
      fma(below, below.like(0x1p-64), (fraction & kBeyondDouble).cast(DType::kF64));
  const Expr turns = leading + trailing;
  const Expr turns_error = trailing - (turns - leading);
  constexpr double kQuarter = 0x1p-64 * kHalfPi, kQuarterLow = 0x1p-64 * kHalfPiLow;
  const Expr radians = turns * kQuarter;
  const Expr error = fma(turns, turns.like(kQuarter), -radians) +
                     fma(turns, turns.like(kQuarterLow), turns_error * kQuarter);
  return {radians, error, quarters};
}

// A branch skips the long way where no lane needs it (program/passes/rare_work.cc).
Angle Reduce(Expr size) {
  const Angle near = ReduceNear(size), far = ReduceFar(size);
  const Expr is_far = kNearMax < size;
  return {is_far.where(far.rest, near.rest), is_far.where(far.error, near.error),
          is_far.where(far.n, near.n)};
}

// The sine of rest + (n + quarters) quarter turns, with the sign of `sign`.
Expr SineOf(const Angle& angle, int quarters, Expr sign) {
  const Expr r = angle.rest;
  const Expr z = r * r;
  const auto series = [](int first, int last) {
    Coefficients c;
    for (int k = first; k <= last; k += 2) c.push_back((k % 4 < 2 ? 1 : -1) / Factorial(k));
    return c;
  };
  const Expr sine = r + fma(r * z, Polynomial(z, series(3, 17)), angle.error);
  const Expr curve = fma(z, Polynomial(z, series(4, 18)), z.like(-0.5));
  const Expr cosine = fma(z, curve, -(r * angle.error)) + 1;
  const Expr n = angle.n + quarters;
  const Expr turned = ((n & 1) == 1).where(cosine, sine);
  return Number(Bits(turned) ^ ((n & 2) << 62) ^ sign);
}

Expr OfNumbers(Expr size, Expr value) { return (size < kInfinity).where(value, size.like(kNaN)); }

Expr Sin(Expr x) {
  const Expr sign = Bits(x) & kSignBit;
  const Expr size = Number(Bits(x) ^ sign);
  return OfNumbers(size, SineOf(Reduce(size), 0, sign));
}

Expr Cos(Expr x) {
  const Expr size = Number(Bits(x) & ~kSignBit);
  return OfNumbers(size, SineOf(Reduce(size), 1, Bits(size).like(0)));
}

// ---- the table

template <Expr (*F)(Expr)>
const UOp* InF64(Graph& g, const Match& m) {
  if (m.root->dtype != DType::kF64) return nullptr;
  return F({g, m[pattern::x]}).node();
}

using pattern::unary;
using pattern::x;

// clang-format off
constexpr Rule kRules[] = {
    // name       matches              becomes
    {"exp-f64",   unary(Op::kExp, x),  InF64<Exp>},
    {"exp2-f64",  unary(Op::kExp2, x), InF64<Exp2>},
    {"log-f64",   unary(Op::kLog, x),  InF64<Log>},
    {"log2-f64",  unary(Op::kLog2, x), InF64<Log2>},
    {"sin-f64",   unary(Op::kSin, x),  InF64<Sin>},
    {"cos-f64",   unary(Op::kCos, x),  InF64<Cos>},
    {"tanh-f64",  unary(Op::kTanh, x), InF64<Tanh>},
};
// clang-format on

bool IsFunctionOfF64(const UOp* node) {
  return IsTranscendental(node->op) && node->dtype == DType::kF64;
}

}  // namespace

const UOp* DecomposeTranscendentalsOfF64(Graph& graph, const UOp* sink) {
  // Never destroyed, so that threads may use it until the process ends.
  static const Matcher& matcher = *new Matcher({kRules});
  const std::vector<const UOp*> nodes = PostOrder(sink);
  if (std::none_of(nodes.begin(), nodes.end(), IsFunctionOfF64)) return sink;
  return Rewrite(graph, CopiedTo(graph, nodes), matcher);
}

}  // namespace outboard::codegen
