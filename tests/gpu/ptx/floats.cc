// Floating-point arithmetic in f64, f32, f16 and bf16.
//
// Functions that PTX calls approximate are rounded correctly: within the bounds of PTX, and the
// same on every host whose libm rounds correctly in double. ex2 and rcp may be told to be as wrong
// as PTX allows.
#include "tests/gpu/ptx/scalar.h"

namespace outboard::ptx {
namespace {

// Runs `f` in the rounding mode of an instruction.
template <class F>
auto Rounded(Rounding rounding, F f) {
  if (rounding == Rounding::kNearest) return f();
  const int mode = rounding == Rounding::kZero   ? FE_TOWARDZERO
                   : rounding == Rounding::kDown ? FE_DOWNWARD
                                                 : FE_UPWARD;
  std::fesetround(mode);
  auto result = f();
  std::fesetround(FE_TONEAREST);
  return result;
}

template <class T>
T MinOf(T a, T b, bool nan) {
  if (std::isnan(a) || std::isnan(b))
    return nan || (std::isnan(a) && std::isnan(b)) ? std::numeric_limits<T>::quiet_NaN()
           : std::isnan(a)                         ? b
                                                   : a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T MaxOf(T a, T b, bool nan) {
  if (std::isnan(a) || std::isnan(b))
    return nan || (std::isnan(a) && std::isnan(b)) ? std::numeric_limits<T>::quiet_NaN()
           : std::isnan(a)                         ? b
                                                   : a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// One operation in T; `volatile` keeps it where the rounding mode is.
template <class T>
T Compute(const Instruction& in, T a, T b, T c) {
  volatile T x = a, y = b, z = c;
  switch (in.op) {
    case Op::kAdd: return x + y;
    case Op::kSub: return x - y;
    case Op::kMul: return x * y;
    case Op::kDiv: return x / y;
    case Op::kFma:
    case Op::kMad: return std::fma(T{x}, T{y}, T{z});
    case Op::kRcp: return T{1} / x;
    case Op::kSqrt: return std::sqrt(T{x});
    default: return 0;
  }
}

float Function32(const Instruction& in, float value) {
  const double x = value;
  switch (in.op) {
    case Op::kRsqrt: return static_cast<float>(1.0 / std::sqrt(x));
    case Op::kSin: return static_cast<float>(std::sin(x));
    case Op::kCos: return static_cast<float>(std::cos(x));
    case Op::kLg2: return static_cast<float>(std::log2(x));
    case Op::kEx2: return static_cast<float>(std::exp2(x));
    case Op::kTanh: return static_cast<float>(std::tanh(x));
    default: return 0;
  }
}

// A number of (-1, 1), the same whenever both are the same.
double PartOf(uint64_t x, uint64_t seed) {
  uint64_t bits = (x + (seed << 32)) * 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9;
  return static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;
}

// 2^x, off by a part that is below PTX's bound, 2^-22, after it is rounded too.
float InexactPower(float x, uint64_t seed) {
  constexpr double kMostOff = 0x1p-22 - 0x1p-24;
  const double part = PartOf(std::bit_cast<uint32_t>(x), seed);
  return static_cast<float>(std::exp2(static_cast<double>(x)) * (1 + kMostOff * part));
}

// 1 / x, or the number above or below it, within PTX's bound of one unit in the last place.
float InexactReciprocal(float x, uint64_t seed) {
  const double exact = 1 / static_cast<double>(x);
  const auto nearest = static_cast<float>(exact);
  if (!std::isnormal(nearest)) return nearest;
  const double part = PartOf(std::bit_cast<uint32_t>(x), seed);
  if (std::fabs(part) < 1.0 / 3) return nearest;
  const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
  const float other = std::nextafter(nearest, part < 0 ? -INFINITY : INFINITY);
  return std::fabs(other - exact) <= unit ? other : nearest;
}

// The upper half of the bits of 1 / x. PTX gives no bound for what the unit makes of the upper half
// of x; the most that it is off here is what the printer of PTX allows it.
double CoarseReciprocal(double x, uint64_t seed) {
  constexpr double kMostOff = 0x1p-14 - 0x1p-20;
  double y = 1 / x;
  if (std::isnan(y)) return y;
  if (std::fpclassify(y) == FP_SUBNORMAL) return std::copysign(0.0, y);
  if (seed != 0) y *= 1 + kMostOff * PartOf(std::bit_cast<uint64_t>(x), seed);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(y) & ~uint64_t{UINT32_MAX});
}

template <class T>
void Float(Warp* w, const Instruction& in, uint32_t mask) {
  const auto flush = [&](T x) {
    if constexpr (std::is_same_v<T, float>)
      return in.ftz ? FlushDenormal(x) : x;
    else
      return x;
  };
  const auto finish = [&](T x) {
    x = flush(x);
    if (in.sat) x = x > 0 ? std::min(x, T{1}) : T{0};  // NaN and -0 become +0
    if (std::isnan(x)) {
      if constexpr (std::is_same_v<T, float>)
        x = std::bit_cast<float>(kNanF32);
      else
        x = std::bit_cast<double>(kNanF64);
    }
    return x;
  };
  const bool plain = in.rounding == Rounding::kNearest && !in.ftz && !in.sat;
  switch (in.op) {
    case Op::kAdd:
      if (plain) return Map2<T>(w, in, mask, [&](T a, T b) { return finish(a + b); });
      break;
    case Op::kSub:
      if (plain) return Map2<T>(w, in, mask, [&](T a, T b) { return finish(a - b); });
      break;
    case Op::kMul:
      if (plain) return Map2<T>(w, in, mask, [&](T a, T b) { return finish(a * b); });
      break;
    case Op::kFma:
    case Op::kMad:
      if (plain)
        return Map3<T>(w, in, mask, [&](T a, T b, T c) { return finish(std::fma(a, b, c)); });
      return Map3<T>(w, in, mask, [&](T a, T b, T c) {
        return finish(
            Rounded(in.rounding, [&] { return Compute<T>(in, flush(a), flush(b), flush(c)); }));
      });
    case Op::kDiv: break;
    case Op::kRcp:
      if (in.approx) {
        if constexpr (std::is_same_v<T, double>)
          return Map1<T>(w, in, mask, [&](T a) {
            return finish(CoarseReciprocal(
                std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0, a) : a, w->inexact));
          });
        else if (w->inexact != 0)
          return Map1<T>(w, in, mask,
                         [&](T a) { return finish(InexactReciprocal(flush(a), w->inexact)); });
      }
      [[fallthrough]];
    case Op::kSqrt:
      return Map1<T>(w, in, mask, [&](T a) {
        return finish(Rounded(in.rounding, [&] { return Compute<T>(in, flush(a), 0, 0); }));
      });
    case Op::kRsqrt:
    case Op::kSin:
    case Op::kCos:
    case Op::kLg2:
    case Op::kEx2:
    case Op::kTanh:
      if constexpr (std::is_same_v<T, float>) {
        if (in.op == Op::kEx2 && w->inexact != 0)
          return Map1<T>(w, in, mask,
                         [&](T a) { return finish(InexactPower(flush(a), w->inexact)); });
        return Map1<T>(w, in, mask, [&](T a) { return finish(Function32(in, flush(a))); });
      } else {
        return Map1<T>(w, in, mask, [&](T a) { return finish(1.0 / std::sqrt(a)); });
      }
    case Op::kMin:
      return Map2<T>(w, in, mask,
                     [&](T a, T b) { return finish(MinOf(flush(a), flush(b), in.nan)); });
    case Op::kMax:
      return Map2<T>(w, in, mask,
                     [&](T a, T b) { return finish(MaxOf(flush(a), flush(b), in.nan)); });
    case Op::kAbs: return Map1<T>(w, in, mask, [&](T a) { return finish(std::fabs(flush(a))); });
    case Op::kNeg: return Map1<T>(w, in, mask, [&](T a) { return flush(-a); });
    case Op::kCopysign: return Map2<T>(w, in, mask, [&](T a, T b) { return std::copysign(b, a); });
    case Op::kSelp: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b), *c = w->row(in.c);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) { d[i] = c[i] & 1 ? a[i] : b[i]; });
      return;
    }
    case Op::kMov: {
      const uint64_t* a = w->row(in.a);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) { d[i] = a[i]; });
      return;
    }
    default: return;
  }
  Map2<T>(w, in, mask, [&](T a, T b) {
    return finish(Rounded(in.rounding, [&] { return Compute<T>(in, flush(a), flush(b), 0); }));
  });
}

// Half types: one element, in double, rounded once.
uint16_t Small(const Instruction& in, FloatFormat format, uint16_t x, uint16_t y, uint16_t z) {
  const int sign_shift = format.exponent_bits + format.mantissa_bits;
  const uint16_t sign = static_cast<uint16_t>(1u << sign_shift);
  if (in.op == Op::kAbs) return static_cast<uint16_t>(x & ~sign);
  if (in.op == Op::kNeg) return static_cast<uint16_t>(x ^ sign);
  const auto decode = [&](uint16_t bits) {
    double value = Decode(bits, format);
    if (in.ftz && value != 0 &&
        (bits >> format.mantissa_bits & ((1 << format.exponent_bits) - 1)) == 0)
      value = std::copysign(0.0, value);
    return value;
  };
  const double a = decode(x), b = decode(y), c = decode(z);
  double r = 0;
  switch (in.op) {
    case Op::kAdd: r = OddAdd(a, b); break;
    case Op::kSub: r = OddAdd(a, -b); break;
    case Op::kMul: r = a * b; break;
    case Op::kFma: r = OddFma(a, b, c); break;
    case Op::kMin: r = MinOf(a, b, in.nan); break;
    case Op::kMax: r = MaxOf(a, b, in.nan); break;
    case Op::kEx2: r = std::exp2(a); break;
    case Op::kTanh: r = std::tanh(a); break;
    case Op::kCopysign: return static_cast<uint16_t>((y & ~sign) | (x & sign));
    default: break;
  }
  if (in.relu && (r < 0 || std::isnan(r))) r = std::isnan(r) ? r : 0;
  if (in.sat) r = r > 0 ? std::min(r, 1.0) : 0;
  uint32_t bits = Encode(r, format);
  if (in.ftz && (bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1)) == 0)
    bits &= sign;
  return static_cast<uint16_t>(bits);
}

void SmallFloat(Warp* w, const Instruction& in, uint32_t mask) {
  const bool half = in.type == Type::kF16 || in.type == Type::kF16x2;
  const bool pair = in.type == Type::kF16x2 || in.type == Type::kBf16x2;
  const FloatFormat format = half ? kHalfFormat : kBfloatFormat;
  const uint64_t* a = w->row(in.a);
  const uint64_t* b = in.b >= 0 ? w->row(in.b) : a;
  const uint64_t* c = in.c >= 0 ? w->row(in.c) : a;
  uint64_t* d = w->row(in.d);
  if (in.op == Op::kMov || in.op == Op::kSelp) {
    ForLanes(mask, [&](int i) { d[i] = in.op == Op::kMov || (c[i] & 1) ? a[i] : b[i]; });
    return;
  }
  ForLanes(mask, [&](int i) {
    const auto part = [](uint64_t x, int k) { return static_cast<uint16_t>(x >> (16 * k)); };
    uint64_t r = Small(in, format, part(a[i], 0), part(b[i], 0), part(c[i], 0));
    if (pair) r |= uint64_t{Small(in, format, part(a[i], 1), part(b[i], 1), part(c[i], 1))} << 16;
    d[i] = r;
  });
}

}  // namespace

void FloatInstruction(Warp* warp, const Instruction& in, uint32_t mask) {
  if (in.type == Type::kF32) return Float<float>(warp, in, mask);
  if (in.type == Type::kF64) return Float<double>(warp, in, mask);
  SmallFloat(warp, in, mask);
}

}  // namespace outboard::ptx
